-- bypassing: which of these roles row-level security does not apply to, though tables outside the queue have some; and
-- which own such tables without the security being forced on owners, with what forces it.
select
    r.rolname as role,
    case when r.rolsuper then 'superuser' when r.rolbypassrls then 'BYPASSRLS' else 'owner' end as reason,
    min(t.full_name) as example,
    case
        when not r.rolsuper and not r.rolbypassrls
            then string_agg('alter table ' || t.full_name || ' force row level security', '; ' order by t.full_name)
    end as forced_by
from pg_roles r
cross join pg_class c
join pg_namespace n on n.oid = c.relnamespace
cross join lateral (select quote_ident(n.nspname) || '.' || quote_ident(c.relname)) as t (full_name)
where r.rolname = any (%(roles)s::text[])
    and c.relrowsecurity and c.relkind in ('r', 'p')
    and n.nspname not in ('information_schema', 'fencepost') and not starts_with(n.nspname, 'pg_')
    and (
        r.rolsuper or r.rolbypassrls
        or (%(owners_too)s and not c.relforcerowsecurity and pg_has_role(r.oid, c.relowner, 'usage'))
    )
group by r.rolname, r.rolsuper, r.rolbypassrls
order by r.rolname
