-- waiting: how many due jobs wait that this supervisor could run, counted no further than there are idle workers, and how
-- many seconds until the next one is due. The supervisor's own poll.
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
), mine as materialized (
    select * from lane
    where lane.queue = any (%(queues)s::text[]) or '*' = any (%(queues)s::text[])
    limit 1000
)
select
    (
        select count(*) from (
            select from mine
            cross join lateral (
                select from fencepost.jobs j
                where j.status = 'queued' and j.queue = mine.queue and j.priority = mine.priority
                    and j.run_at <= now() and j.kind = any (%(kinds)s::text[])
                order by j.run_at, j.id
                limit %(idle)s
            ) due
            limit %(idle)s
        ) counted
    ) as due,
    (
        select extract(epoch from min(scheduled.run_at) - clock_timestamp())::float8 from mine
        cross join lateral (
            select j.run_at from fencepost.jobs j
            where j.status = 'queued' and j.queue = mine.queue and j.priority = mine.priority and j.run_at > now()
            order by j.run_at
            limit 1
        ) scheduled
    ) as next_due_in
