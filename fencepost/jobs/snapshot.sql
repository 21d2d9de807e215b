-- snapshot: what is set in a caller's transaction before a job works in it, for `restore`.
select
    %(tenant_setting)s::text as tenant_setting,
    current_setting('role') as role,
    coalesce(current_setting('fencepost_job.run', true), '') as run,
    coalesce(current_setting('fencepost_job.tenant', true), '') as job_tenant,
    coalesce(current_setting(coalesce(nullif(%(tenant_setting)s, ''), 'fencepost_job.tenant'), true), '') as tenant,
    (
        select coalesce(jsonb_object_agg(s.name, s.setting), '{}')::text
        from pg_settings s
        where s.source = 'session' and s.setting is distinct from s.reset_val
    ) as settings
