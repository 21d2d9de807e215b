-- lanes: the pairs of queue and priority in which jobs wait, each with the run_at of its first.
-- A loose scan: the index gives one pair after the other, so this costs a step a pair and not a step a job.
with recursive lane as (
    (
        select j.queue, j.priority, j.run_at
        from fencepost.jobs j
        where j.status = 'queued'
        order by j.queue, j.priority, j.run_at, j.id
        limit 1
    )
    union all
    select following.queue, following.priority, following.run_at
    from lane
    cross join lateral (
        select j.queue, j.priority, j.run_at
        from fencepost.jobs j
        where j.status = 'queued' and (j.queue, j.priority) > (lane.queue, lane.priority)
        order by j.queue, j.priority, j.run_at, j.id
        limit 1
    ) following
)
select lane.queue, lane.priority
from lane
where lane.run_at <= coalesce(%(due_by)s::timestamptz, now())
    and (lane.queue = any (%(queues)s::text[]) or '*' = any (%(queues)s::text[]))
limit 1000
