-- login: as whom this session acts, whether it may take on the role of jobs, and how many sessions the server has room
-- for.
select
    session_user::text as login,
    current_user::text as acting_as,
    current_setting('max_connections')::int as max_connections,
    exists (select from pg_roles r where r.rolname = %(job_role)s) as job_role_exists,
    coalesce(
        (select pg_has_role(session_user, r.oid, %(to_set)s) from pg_roles r where r.rolname = %(job_role)s), false
    ) as may_set_job_role
