"""What is left in a session, and how that is found there: for jobs, and for other clients of a pooler."""

LEFT = """
select set_config('app.tenant', '999', false), set_config('work_mem', '7MB', false),
    set_config('timezone', 'Asia/Tokyo', false),
    set_config('application_name', 'left', false), set_config('search_path', 'pg_temp', false),
    set_config('intervalstyle', 'iso_8601', false), set_config('datestyle', 'German', false), pg_advisory_lock(4711);
create temporary table left_here (n int);
create temporary sequence counted;
select nextval('counted');
prepare left_here as select 1;
listen left_here;
declare left_here cursor with hold for select 1;
"""
"""All that a transaction can leave in its session."""

FOUND = """
select 'tenant ' || current_setting('app.tenant', true) as what where current_setting('app.tenant', true) <> %(tenant)s
union all select 'role ' || current_user where current_user <> session_user
union all select name || ' ' || setting from pg_settings
    where name in ('work_mem', 'TimeZone', 'search_path') and setting <> reset_val
union all select 'application ' || current_setting('application_name')
    where current_setting('application_name') not like all (array['fencepost %%', 'another'])
union all select 'temporary ' || relname from pg_class where relnamespace = pg_my_temp_schema() and relkind = 'r'
union all select 'lock' from pg_locks where locktype = 'advisory' and pid = pg_backend_pid() and objid = 4711
union all select 'prepared ' || name from pg_prepared_statements where name <> ''
union all select 'listening ' || c from pg_listening_channels() as c
union all select 'cursor ' || name from pg_cursors where is_holdable
order by 1
"""
"""What is there of it, a row each."""
