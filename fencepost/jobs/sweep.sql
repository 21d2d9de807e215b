-- sweep: what was seen expired, and still stands unchanged, is lost. Rows that are locked just now are left for the next
-- pass: their holder, or another sweeper, is at work on them.
with seen as materialized (
    select stands.id, stands.fence, stands.locked_by
    from unnest(%(ids)s::bigint[], %(fences)s::bigint[], %(names)s::text[], %(expired_at)s::timestamptz[])
        as s (id, fence, name, expired_at)
    -- Each by its primary key, however many there are: as in `heartbeat`.
    cross join lateral (
        select j.id, j.fence, j.locked_by from fencepost.jobs j
        where j.id = s.id and j.fence = s.fence and j.locked_by = s.name and j.locked_until = s.expired_at
            and j.locked_until <= now()
        limit 1
        for no key update of j skip locked
    ) stands
)
select
    seen.id, seen.fence, seen.locked_by as name,
    fencepost.finish(
        seen.id, seen.fence, seen.locked_by, 'lost',
        error => %(error)s, summary => %(summary)s
    ) as booked
from seen
