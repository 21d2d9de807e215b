-- enqueue: a job in the caller's own transaction. The function is the same that any other language calls; the tenant that it
-- takes by itself where none is given is asked for here, since an argument can't be left out by a parameter.
select fencepost.enqueue(
    %(kind)s, %(payload)s, tenant => case
        when %(inherit)s then nullif(current_setting('fencepost_job.tenant', true), '') else %(tenant)s
    end,
    queue => %(queue)s, priority => %(priority)s, run_at => %(run_at)s,
    after => %(after)s, max_attempts => %(max_attempts)s, max_runtime => %(max_runtime)s, unique_key => %(unique_key)s
)
