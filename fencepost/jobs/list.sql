-- list: the newest jobs first. Walks the primary key backwards, and no further than %(above)s: with a filter that few
-- jobs pass it would else read the whole table. Parameters are put in by the client, so that a filter that is not set
-- vanishes before the plan is made, and one for a status that has an index of its own can use it.
-- A large payload is not read for the start of it: 50 of 1 MB each would take seconds.
select
    j.id, j.status, j.kind, j.queue, j.tenant_id, j.priority, j.attempts, j.max_attempts, j.interruptions,
    j.run_at, j.created_at, j.started_at, j.finished_at, now() as asked_at,
    case when pg_column_size(j.payload) < 4000 then left(j.payload::text, %(cut)s) end as payload_start,
    left(j.last_error, %(cut)s) as last_error
from fencepost.jobs j
where j.id > %(above)s
    and (%(before)s::bigint is null or j.id < %(before)s)
    and (%(status)s::text is null or j.status = %(status)s)
    and (%(kind)s::text is null or j.kind = %(kind)s)
    and (%(queue)s::text is null or j.queue = %(queue)s)
    and (%(tenant)s::text is null or j.tenant_id = %(tenant)s)
order by j.id desc
limit %(limit)s
