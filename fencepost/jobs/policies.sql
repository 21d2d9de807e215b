-- policies: those that bind this role on tables outside the queue which it may use, with their expressions as the server writes
-- them out, and the types that take any text. Nothing but the catalog is on the search path meanwhile: names come with their
-- schemas, so that what is made of them can be pasted under any path. A policy counts where the role has the right that it is
-- for, and where row-level security applies to the role at all.
select
    quote_ident(p.polname) || ' on ' || quote_ident(n.nspname) || '.' || quote_ident(c.relname) as full_name,
    pg_get_expr(p.polqual, p.polrelid) as sees,
    pg_get_expr(p.polwithcheck, p.polrelid) as writes,
    array(
        select format_type(t.oid, null) from pg_type t where t.typcategory = 'S' and t.typtype in ('b', 'd')
    ) as text_types
from (select set_config('search_path', 'pg_catalog', true)) as path (is_empty)
cross join pg_roles r
cross join pg_policy p
join pg_class c on c.oid = p.polrelid and c.relrowsecurity
join pg_namespace n on n.oid = c.relnamespace
where r.rolname = %(acting_as)s
    and n.nspname not in ('information_schema', 'fencepost') and not starts_with(n.nspname, 'pg_')
    and not r.rolsuper and not r.rolbypassrls
    and (c.relforcerowsecurity or not pg_has_role(r.oid, c.relowner, 'usage'))
    and has_schema_privilege(r.oid, n.oid, 'usage')
    and (
        (p.polcmd in ('*', 'd') and has_table_privilege(r.oid, c.oid, 'delete'))
        or (p.polcmd in ('*', 'r') and has_any_column_privilege(r.oid, c.oid, 'select'))
        or (p.polcmd in ('*', 'a') and has_any_column_privilege(r.oid, c.oid, 'insert'))
        or (p.polcmd in ('*', 'w') and has_any_column_privilege(r.oid, c.oid, 'update'))
    )
    and exists (
        select from unnest(p.polroles) member (oid)
        where case when member.oid = 0 then true else pg_has_role(r.oid, member.oid, 'usage') end
    )
order by n.nspname, c.relname, p.polname
