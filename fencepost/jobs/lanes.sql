-- lanes: the pairs of queue and priority in which due jobs wait, of the queues that this supervisor serves.
-- A loose scan: the index gives one pair after the other, so this costs a step a pair and not a step a job. It begins at each
-- queue that is served and ends behind it, or with `*` goes through all: however many priorities others have in queues of their
-- own, it does not pass by them.
with recursive lane as (
    select first.queue, first.priority, first.run_at, served.queue = '*' as goes_on
    from unnest(%(queues)s::text[]) as served (queue)
    cross join lateral (
        select j.queue, j.priority, j.run_at
        from fencepost.jobs j
        where j.status = 'queued' and j.queue >= case when served.queue = '*' then '' else served.queue end
        order by j.queue, j.priority, j.run_at, j.id
        limit 1
    ) first
    where served.queue = '*' or (first.queue = served.queue and '*' <> all (%(queues)s::text[]))
    union all
    select following.queue, following.priority, following.run_at, lane.goes_on
    from lane
    cross join lateral (
        select j.queue, j.priority, j.run_at
        from fencepost.jobs j
        where j.status = 'queued' and (j.queue, j.priority) > (lane.queue, lane.priority)
        order by j.queue, j.priority, j.run_at, j.id
        limit 1
    ) following
    where lane.goes_on or following.queue = lane.queue
)
select lane.queue, lane.priority
from lane
where lane.run_at <= coalesce(%(due_by)s::timestamptz, now())
limit 1000
