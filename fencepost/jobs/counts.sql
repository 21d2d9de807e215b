-- counts: by the partial indexes, and no further than %(most)s each: jobs at rest for good are not counted, since only
-- the whole table could tell how many they are.
select
    (select count(*) from (select from fencepost.jobs j where j.status = 'queued' limit %(most)s) q) as queued,
    (select count(*) from (select from fencepost.jobs j where j.status = 'running' limit %(most)s) r) as running,
    (select count(*) from (select from fencepost.jobs j where j.status = 'dead' limit %(most)s) d) as dead,
    (
        select count(*) from (
            select from fencepost.jobs j where j.status = 'running' and j.locked_until < now() limit %(most)s
        ) e
    ) as expired
