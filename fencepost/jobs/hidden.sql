-- hidden: tables of the queue whose row-level security applies to the login, or to the owner of the functions that
-- write for it, without a policy that lets it see and write every row. The queue would look empty, and everything
-- healthy.
with need (is_for, name, command) as (
    values
        ('login', 'jobs', 'r'), ('login', 'jobs', 'w'),
        ('login', 'job_runs', 'r'),
        ('login', 'supervisors', 'r'), ('login', 'supervisors', 'a'), ('login', 'supervisors', 'w'), ('login',
        'supervisors', 'd'), ('login', 'schema_version', 'r'),
        ('definer', 'jobs', 'r'), ('definer', 'jobs', 'a'), ('definer', 'jobs', 'w'),
        ('definer', 'job_runs', 'r'), ('definer', 'job_runs', 'a')
), policy as (
    select
        p.polrelid, p.polroles, p.polpermissive, p.polcmd::text as command,
        coalesce(pg_get_expr(p.polqual, p.polrelid), 'true') = 'true' as sees_all,
        coalesce(pg_get_expr(p.polwithcheck, p.polrelid), pg_get_expr(p.polqual, p.polrelid), 'true') = 'true'
            as writes_all
    from pg_policy p
)
select distinct
    r.rolname as role,
    quote_ident(n.nspname) || '.' || quote_ident(c.relname) as full_name,
    'create policy fencepost on ' || quote_ident(n.nspname) || '.' || quote_ident(c.relname)
        || ' to ' || quote_ident(r.rolname) || ' using (true) with check (true)' as cure
from need
join pg_namespace n on n.nspname = 'fencepost'
join pg_class c on c.relnamespace = n.oid and c.relname = need.name and c.relrowsecurity
join pg_roles r on case need.is_for
    when 'login' then r.rolname = current_user
    else r.oid = (select f.proowner from pg_proc f where f.pronamespace = n.oid and f.proname = 'finish' limit 1)
end
cross join lateral (
    select
        coalesce(bool_or(policy.polpermissive and policy.sees_all and policy.writes_all), false) as allowed,
        coalesce(bool_or(not policy.polpermissive and not (policy.sees_all and policy.writes_all)), false) as restricted
    from policy
    where policy.polrelid = c.oid and policy.command in ('*', need.command)
        and exists (
            select from unnest(policy.polroles) member (oid)
            where case when member.oid = 0 then true else pg_has_role(r.oid, member.oid, 'usage') end
        )
) applies
where not r.rolsuper and not r.rolbypassrls
    and (c.relforcerowsecurity or not pg_has_role(r.oid, c.relowner, 'usage'))
    and (not applies.allowed or applies.restricted)
order by full_name, role
