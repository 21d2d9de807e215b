-- get: a job, as the function gives it to any other language. JSON as text: it is read here.
select
    j.id, j.queue, j.kind, j.payload::text as payload, j.tenant_id, j.priority, j.run_at, j.status, j.attempts,
    j.max_attempts, j.interruptions, j.fence, j.locked_until, j.locked_by, j.max_runtime, j.unique_key,
    j.progress::text as progress, j.result::text as result, j.last_error, j.cancel_requested_at, j.created_at,
    j.started_at, j.finished_at
from fencepost.get(%(id)s::bigint, %(tenant)s::text) j
