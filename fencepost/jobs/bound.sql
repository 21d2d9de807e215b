-- bound: whether what `context` has set is still there for the next statement: not if no transaction was open.
select
    current_setting(coalesce(nullif(%(tenant_setting)s, ''), 'fencepost_job.tenant'), true),
    current_setting('fencepost_job.run', true) = %(name)s
        and (%(role)s = '' or current_setting('role') = %(role)s)
