-- context: as whom a job's transaction works: the tenant and the role, set locally, and so is the run's token, which `hold`
-- demands at the end: a job that has ended this transaction itself is found out by its absence.
-- The role comes last, since it may not be allowed the rest.
select
    set_config('fencepost_job.run', %(name)s, true),
    set_config(coalesce(nullif(%(tenant_setting)s, ''), 'fencepost_job.tenant'), %(tenant)s, true),
    set_config('role', coalesce(nullif(%(role)s, ''), current_setting('role')), true)
