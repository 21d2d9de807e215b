-- due_kinds: what waits though it is due, by queue and kind, for how long at most, and whether a living supervisor
-- serves it. Looks at the first thousand of each lane, where what no one serves gathers: a step a lane, as in
-- lanes.sql.
with recursive lane as (
    (
        select j.queue, j.priority from fencepost.jobs j where j.status = 'queued'
        order by j.queue, j.priority limit 1
    )
    union all
    select following.queue, following.priority
    from lane
    cross join lateral (
        select j.queue, j.priority from fencepost.jobs j
        where j.status = 'queued' and (j.queue, j.priority) > (lane.queue, lane.priority)
        order by j.queue, j.priority limit 1
    ) following
), due as (
    select head.queue, head.kind, head.run_at
    from (select lane.queue, lane.priority from lane limit 1000) l
    cross join lateral (
        select j.queue, j.kind, j.run_at from fencepost.jobs j
        where j.status = 'queued' and j.queue = l.queue and j.priority = l.priority and j.run_at <= now()
        order by j.run_at, j.id
        limit 1000
    ) head
    limit 20000
), waiting as (
    select due.queue, due.kind, min(due.run_at) as oldest from due group by due.queue, due.kind
)
select
    waiting.queue, waiting.kind, extract(epoch from now() - waiting.oldest)::float8 as waits_for,
    exists (
        select from fencepost.supervisors s
        where s.seen_at > now() - (3 * s.heartbeat + interval '5 seconds')
            and waiting.kind = any (s.kinds) and (waiting.queue = any (s.queues) or '*' = any (s.queues))
    ) as served
from waiting
order by waiting.oldest
limit 1000
