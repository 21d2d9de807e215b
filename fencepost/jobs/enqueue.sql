-- enqueue: a job in the caller's own transaction. The function is the same that any other language calls.
select fencepost.enqueue(
    %(kind)s, %(payload)s, tenant => %(tenant)s, queue => %(queue)s, priority => %(priority)s, run_at => %(run_at)s,
    after => %(after)s, max_attempts => %(max_attempts)s, max_runtime => %(max_runtime)s, unique_key => %(unique_key)s
)
