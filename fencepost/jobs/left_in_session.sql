-- left_in_session: what a job has left in its session, before that is made as new: by that nothing crosses, this is what it is
-- named by. What psycopg has prepared by itself is nobody's fault, and no portal without a name is. A setting of an
-- application's own is in no list: of those the tenant's is asked for by name.
-- Every name with its schema: what the job has left may be a search path, or a temporary table of a catalog's name.
select pg_catalog.concat_ws(
    ', ',
    case when pg_catalog.current_setting(coalesce(nullif(%(tenant_setting)s, ''), 'fencepost_job.tenant'), true) <> ''
        then 'the tenant' end,
    case when pg_catalog.current_setting('role') <> %(role)s then 'a role' end,
    (
        select 'settings (' || pg_catalog.string_agg(s.name, ', ' order by s.name) || ')'
        from pg_catalog.pg_settings s
        where s.source = 'session' and s.setting is distinct from s.reset_val
        having pg_catalog.count(*) > 0
    ),
    case when exists (
        select from pg_catalog.pg_class c
        where c.relnamespace = pg_catalog.pg_my_temp_schema() and c.relkind in ('r', 'p', 'v', 'S')
    ) then 'temporary tables' end,
    case when exists (
        select from pg_catalog.pg_locks l
        where l.locktype = 'advisory' and l.pid = pg_catalog.pg_backend_pid() and l.granted
    ) then 'advisory locks' end,
    case when exists (select from pg_catalog.pg_listening_channels()) then 'LISTEN' end,
    case when exists (select from pg_catalog.pg_cursors c where c.is_holdable and c.name <> '') then 'cursors' end,
    case when exists (select from pg_catalog.pg_prepared_statements p where not pg_catalog.starts_with(p.name, '_pg3_'))
        then 'prepared statements' end
) as "left"
