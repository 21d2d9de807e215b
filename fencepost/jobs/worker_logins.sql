-- worker_logins: as whom the sessions of supervisors and workers are logged in. Everyone may see this much of them.
select distinct a.usename::text as login
from pg_stat_activity a
where a.datname = current_database() and starts_with(a.application_name, 'fencepost ')
