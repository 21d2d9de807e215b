-- show: a job. JSON as text: it is shown as it stands, and whatever it is, reading it can't fail.
select
    j.id, j.status, j.kind, j.queue, j.tenant_id, j.priority, j.attempts, j.max_attempts, j.interruptions, j.fence,
    j.run_at, j.created_at, j.started_at, j.finished_at, j.cancel_requested_at, j.locked_by, j.locked_until,
    j.max_runtime, j.unique_key, j.last_error, j.payload::text as payload, j.progress::text as progress, j.result::text
    as result, now() as asked_at
from fencepost.jobs j
where j.id = %(id)s::bigint
