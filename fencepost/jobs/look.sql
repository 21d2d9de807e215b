-- look: what a supervisor asks for as long as it lives, all in one statement. Either half may be left out.
-- Work: how many due jobs wait that this supervisor could run, counted no further than there are idle workers, and how many
-- seconds until the next one is due. With nobody idle nothing is counted.
-- Leases: how those of runs stand that began behind the mark and have gone on for a while, and those of runs that are known
-- already. Without a mark: all. The dead entries of ended runs lie before the mark, and are not walked again; known runs are
-- read by primary key. There is always a row: the server's time, and the next mark.
with recursive lane as (
    -- As in lanes.sql: no step for a lane of a queue that is not served here.
    select first.queue, first.priority, served.queue = '*' as goes_on
    from unnest(%(queues)s::text[]) as served (queue)
    cross join lateral (
        select j.queue, j.priority from fencepost.jobs j
        where j.status = 'queued' and j.queue >= case when served.queue = '*' then '' else served.queue end
        order by j.queue, j.priority limit 1
    ) first
    where served.queue = '*' or (first.queue = served.queue and '*' <> all (%(queues)s::text[]))
    union all
    select following.queue, following.priority, lane.goes_on
    from lane
    cross join lateral (
        select j.queue, j.priority from fencepost.jobs j
        where j.status = 'queued' and (j.queue, j.priority) > (lane.queue, lane.priority)
        order by j.queue, j.priority limit 1
    ) following
    where lane.goes_on or following.queue = lane.queue
), mine as materialized (
    select lane.queue, lane.priority from lane limit 1000
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
        select extract(epoch from min(scheduled.run_at) - clock_timestamp())::float8
        from mine
        cross join lateral (
            select j.run_at from fencepost.jobs j
            where j.status = 'queued' and j.queue = mine.queue and j.priority = mine.priority and j.run_at > now()
            order by j.run_at
            limit 1
        ) scheduled
        where %(idle)s > 0
    ) as next_due_in,
    looked.at, looked.at - %(age)s::interval as mark, j.id, j.fence, j.locked_by as name, j.locked_until
from (select now() as at) looked
left join lateral (
    select j.id, j.fence, j.locked_by, j.locked_until
    from fencepost.jobs j
    where %(leases)s and j.status = 'running' and j.started_at > coalesce(%(mark)s::timestamptz, '-infinity')
        and j.started_at <= case when %(mark)s::timestamptz is null then 'infinity' else looked.at - %(age)s::interval end
    union all
    select j.id, j.fence, j.locked_by, j.locked_until
    from unnest(%(ids)s::bigint[]) as known (id)
    cross join lateral (
        select * from fencepost.jobs j where j.id = known.id and j.locked_until is not null limit 1
    ) j
    where %(leases)s
) j on true
