-- context: as whom a job's transaction works: the tenant and the role, set locally, and so is the run's token, which `hold`
-- demands at the end: a job that has ended this transaction itself is found out by its absence. The tenant is also set under
-- a name that is always the same, by which `enqueue`, `cancel`, `retry` and `get` know whose job it is that calls them.
-- The role comes last, since it may not be allowed the rest. What was set comes back: a setting that some extension has made a
-- number or a switch takes a tenant for another one. So the last two columns are looked at, and are to stay the last.
select
    set_config('fencepost_job.run', %(name)s, true),
    set_config('fencepost_job.tenant', %(tenant)s, true),
    set_config(coalesce(nullif(%(tenant_setting)s, ''), 'fencepost_job.tenant'), %(tenant)s, true) as tenant,
    set_config('role', coalesce(nullif(%(role)s, ''), current_setting('role')), true) as role
