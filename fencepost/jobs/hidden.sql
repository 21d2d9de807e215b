-- hidden: tables of the queue whose row-level security applies to the login, or to the owner of the functions that
-- write for it, without a policy that lets it see and write every row, or with one that narrows what the others allow. The
-- queue would look empty, and everything healthy. A policy's name is that of its role too: two roles may need one on a table.
with need (is_for, name, command) as (
    values
        ('login', 'jobs', 'r'), ('login', 'jobs', 'w'),
        ('login', 'job_runs', 'r'),
        ('login', 'supervisors', 'r'), ('login', 'supervisors', 'a'),
        ('login', 'supervisors', 'w'), ('login', 'supervisors', 'd'),
        ('login', 'schema_version', 'r'),
        ('definer', 'jobs', 'r'), ('definer', 'jobs', 'a'), ('definer', 'jobs', 'w'), ('definer', 'jobs', 'd'),
        ('definer', 'job_runs', 'r'), ('definer', 'job_runs', 'a'), ('definer', 'job_runs', 'd')
), policy as (
    select
        p.polname, p.polrelid, p.polroles, p.polpermissive, p.polcmd::text as command,
        coalesce(pg_get_expr(p.polqual, p.polrelid), 'true') = 'true' as sees_all,
        coalesce(pg_get_expr(p.polwithcheck, p.polrelid), pg_get_expr(p.polqual, p.polrelid), 'true') = 'true'
            as writes_all
    from pg_policy p
)
select
    r.rolname as role,
    quote_ident(n.nspname) || '.' || quote_ident(c.relname) as full_name,
    concat_ws(
        '; ',
        case when bool_or(not applies.allowed) then
            'create policy ' || quote_ident('fencepost_' || r.rolname)
                || ' on ' || quote_ident(n.nspname) || '.' || quote_ident(c.relname)
                || ' to ' || quote_ident(r.rolname) || ' using (true) with check (true)'
        end,
        string_agg(
            distinct 'drop policy if exists ' || quote_ident(narrowing.name)
                || ' on ' || quote_ident(n.nspname) || '.' || quote_ident(c.relname),
            '; '
        )
    ) as cure
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
        array_agg(policy.polname) filter (where not policy.polpermissive and not (policy.sees_all and policy.writes_all))
            as narrowing
    from policy
    where policy.polrelid = c.oid and policy.command in ('*', need.command)
        and exists (
            select from unnest(policy.polroles) member (oid)
            where case when member.oid = 0 then true else pg_has_role(r.oid, member.oid, 'usage') end
        )
) applies
left join lateral unnest(applies.narrowing) as narrowing (name) on true
where not r.rolsuper and not r.rolbypassrls
    and (c.relforcerowsecurity or not pg_has_role(r.oid, c.relowner, 'usage'))
    and (not applies.allowed or narrowing.name is not null)
group by r.rolname, n.nspname, c.relname
order by full_name, role
