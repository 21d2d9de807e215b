-- progress: how many tenants are counted, and how many jobs have not come to rest.
select
    count(*) filter (where j.kind = 'invoice.count' and j.status = 'done') as counted,
    count(*) filter (where j.status in ('queued', 'running')) as unfinished
from fencepost.jobs j
