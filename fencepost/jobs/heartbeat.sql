-- heartbeat: prolong the leases of this supervisor's busy workers, all in one statement, and tell of each whether it was
-- renewed, is locked by someone just now, or is lost.
-- Locked rows are skipped: waiting for one of them would cost all the others their leases. NO KEY, since FOR UPDATE would
-- also skip rows that are only referenced by a foreign key. Locked is not lost, and moves no deadline.
with beat as materialized (
    select * from unnest(%(ids)s::bigint[], %(fences)s::bigint[], %(names)s::text[], %(progress)s::jsonb[])
        as b (id, fence, name, progress)
), mine as materialized (
    select j.id, beat.name, beat.progress
    from beat
    join fencepost.jobs j
        on j.id = beat.id and j.fence = beat.fence and j.locked_by = beat.name and j.locked_until is not null
    for no key update of j skip locked
), renewed as (
    update fencepost.jobs j
    set locked_until = clock_timestamp() + %(lease)s, progress = coalesce(mine.progress, j.progress)
    from mine
    where j.id = mine.id
    returning mine.name, j.cancel_requested_at
)
select
    beat.name,
    case
        when renewed.name is not null then 'renewed'
        when exists (
            select from fencepost.jobs j
            where j.id = beat.id and j.fence = beat.fence and j.locked_by = beat.name and j.locked_until is not null
        ) then 'locked'
        else 'lost'
    end as answer,
    renewed.cancel_requested_at is not null as cancel_requested
from beat
left join renewed on renewed.name = beat.name
