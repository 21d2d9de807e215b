-- restore: after `release`, set again what `snapshot` found: only a rollback takes back what was set, and for the caller a
-- local setting would stay to the end of its own transaction.
-- The role first, since the job's may not be allowed the rest. What nothing was set for before is set for the session, so that
-- a COMMIT of the caller's does not bring back what a job has set for the session.
select set_config('role', %(role)s, %(role)s <> 'none');
select
    set_config('fencepost_job.run', %(run)s, %(run)s <> ''),
    set_config('fencepost_job.tenant', %(job_tenant)s, %(job_tenant)s <> ''),
    set_config(coalesce(nullif(%(tenant_setting)s, ''), 'fencepost_job.tenant'), %(tenant)s, %(tenant)s <> '');
select set_config(s.name, coalesce(before.value, s.reset_val), before.value is not null)
from pg_settings s
left join jsonb_each_text(%(settings)s::jsonb) before on before.key = s.name
where s.source = 'session' and s.setting is distinct from coalesce(before.value, s.reset_val)
