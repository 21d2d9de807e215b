-- held: what a worker holds, by its random name: asked of the table when its board can't be read, when an answer was lost
-- or when the worker is dead. Few rows run at a time, and only they are looked at.
select
    j.id, j.fence, j.locked_by as name, j.queue, j.kind, j.payload::text as payload, j.tenant_id as tenant, j.priority, j.run_at,
    j.attempts as attempt, j.max_attempts, j.max_runtime, j.created_at
from fencepost.jobs j
where j.status = 'running' and starts_with(j.locked_by, %(worker)s || ':')
