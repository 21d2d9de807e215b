-- enqueue_many: jobs in the caller's own transaction. The function is the same that any other language calls.
select fencepost.enqueue_many(
    %(kind)s::text[], %(payload)s::jsonb[], %(tenant)s::text[], %(queue)s::text[], %(priority)s::int[], %(run_at)s::timestamptz[],
    %(after)s::interval[], %(max_attempts)s::int[], %(max_runtime)s::interval[], %(unique_key)s::text[]
)
