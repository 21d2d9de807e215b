-- cancel: by hand. The function is the same that any other language calls.
select fencepost.cancel(
    %(id)s::bigint,
    coalesce(%(tenant)s::text, nullif(current_setting('fencepost_job.tenant', true), ''))
)
