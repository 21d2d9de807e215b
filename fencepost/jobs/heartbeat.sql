-- heartbeat: prolong the leases of this supervisor's busy workers, all in one statement, and tell of each whether it was
-- renewed, is locked by someone just now, or is lost.
-- Locked rows are skipped: waiting for one of them would cost all the others their leases. NO KEY, since FOR UPDATE would
-- also skip rows that are only referenced by a foreign key. Locked is not lost, and moves no deadline.
-- Each run is looked up by itself, by its primary key, and each answer in a list, by its hash. A session plans this once, without
-- knowing how many runs there will be: joined, a thousand were compared with a thousand.
with beat as materialized (
    select * from unnest(%(ids)s::bigint[], %(fences)s::bigint[], %(names)s::text[], %(progress)s::jsonb[])
        as b (id, fence, name, progress)
), mine as materialized (
    select held.id, beat.name, beat.progress
    from beat
    cross join lateral (
        select j.id from fencepost.jobs j
        where j.id = beat.id and j.fence = beat.fence and j.locked_by = beat.name and j.locked_until is not null
        limit 1
        for no key update of j skip locked
    ) held
), renewed as (
    update fencepost.jobs j
    set locked_until = clock_timestamp() + %(lease)s, progress = coalesce(mine.progress, j.progress)
    from mine
    where j.id = mine.id
    returning mine.name, j.cancel_requested_at
)
select renewed.name, 'renewed' as answer, renewed.cancel_requested_at is not null as cancel_requested from renewed
union all
select
    beat.name,
    case
        when exists (
            select from fencepost.jobs j
            where j.id = beat.id and j.fence = beat.fence and j.locked_by = beat.name and j.locked_until is not null
        ) then 'locked'
        else 'lost'
    end,
    false
from beat
where beat.name not in (select renewed.name from renewed)
