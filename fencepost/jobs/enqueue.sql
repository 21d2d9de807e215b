-- enqueue: a job in the caller's own transaction. The function is the same that any other language calls; the tenant that it
-- takes by itself where none is given is asked for here, since an argument can't be left out by a parameter. Null where a tenant
-- is needed and there is none: nothing is enqueued, and the caller's transaction is as it was.
select case
    when whose.tenant is not null or not %(needed)s::bool then fencepost.enqueue(
        %(kind)s, %(payload)s, tenant => whose.tenant, queue => %(queue)s, priority => %(priority)s, run_at => %(run_at)s,
        after => %(after)s, max_attempts => %(max_attempts)s, max_runtime => %(max_runtime)s, unique_key => %(unique_key)s
    )
end
from (
    select case
        when %(inherit)s::bool then nullif(current_setting('fencepost_job.tenant', true), '') else %(tenant)s::text
    end as tenant
) as whose
