-- login: as whom this session acts, whether it may take on the role of jobs, and how many sessions it may have: those that
-- the server keeps for others are none of ours, and a superuser has no limit but the server's.
select
    session_user::text as login,
    current_user::text as acting_as,
    current_database()::text as database,
    current_setting('max_connections')::int - case
        when me.rolsuper then 0
        else current_setting('superuser_reserved_connections')::int
            + case when exists (
                select from pg_roles r
                where r.rolname = 'pg_use_reserved_connections' and pg_has_role(session_user, r.oid, 'usage')
            ) then 0 else coalesce(current_setting('reserved_connections', true)::int, 0) end
    end as server_limit,
    case when me.rolconnlimit >= 0 and not me.rolsuper then me.rolconnlimit end as role_limit,
    (
        select d.datconnlimit from pg_database d
        where d.datname = current_database() and d.datconnlimit >= 0 and not me.rolsuper
    ) as database_limit,
    exists (select from pg_roles r where r.rolname = %(job_role)s) as job_role_exists,
    coalesce(
        (select pg_has_role(session_user, r.oid, %(to_set)s) from pg_roles r where r.rolname = %(job_role)s), false
    ) as may_set_job_role
from pg_roles me
where me.rolname = session_user
