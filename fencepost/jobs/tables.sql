-- tables: what this role has any right on outside the queue, and what is behind it: a table is behind itself, and behind a view
-- is all that it reads, through views in it too, as its owner, or as who asks if it is a security_invoker. So there is a row
-- for each table behind each relation, with what row-level security does there for the role that reads it; one with nulls
-- where nothing is behind.
-- A policy reads the tenant if its text does, or that of a function which it calls. Policies that permit add up, and one that
-- restricts narrows them all, each for the commands that the role may give: one of the first that does not read the tenant
-- opens the table (`opened_by`) unless one of the second does.
with recursive acting as (
    select r.oid from pg_roles r where r.rolname = %(acting_as)s
), relation as (
    select
        c.*,
        quote_ident(n.nspname) || '.' || quote_ident(c.relname) as full_name,
        n.nspname = 'information_schema' or starts_with(n.nspname, 'pg_') as is_system,
        n.nspname = 'fencepost' as is_queue
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where c.relkind in ('r', 'p', 'f', 'v', 'm')
), listed as (
    select
        c.oid, c.full_name,
        array_remove(array[
            case when has_any_column_privilege(acting.oid, c.oid, 'select') then 'r' end,
            case when has_any_column_privilege(acting.oid, c.oid, 'insert') then 'a' end,
            case when has_any_column_privilege(acting.oid, c.oid, 'update') then 'w' end,
            case when has_table_privilege(acting.oid, c.oid, 'delete') then 'd' end
        ], null) as commands,
        case c.relkind
            when 'v' then 'view' when 'm' then 'materialized view' when 'f' then 'foreign table'
            else case when c.relispartition then 'partition' when c.relkind = 'p' then 'partitioned table' else 'table' end
        end as kind
    from relation c
    cross join acting
    where not c.is_system and not c.is_queue
        and (
            has_table_privilege(acting.oid, c.oid, 'select, insert, update, delete, truncate, references, trigger')
            or has_any_column_privilege(acting.oid, c.oid, 'select, insert, update, references')
        )
), reached (listed, oid, role) as (
    select listed.oid, listed.oid, acting.oid from listed cross join acting
    union
    select
        reached.listed, d.refobjid,
        case
            when exists (
                select from pg_options_to_table(v.reloptions) o
                where o.option_name = 'security_invoker' and o.option_value::boolean
            ) then acting.oid
            else v.relowner
        end
    from reached
    cross join acting
    join pg_class v on v.oid = reached.oid and v.relkind = 'v'
    join pg_rewrite w on w.ev_class = v.oid
    join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid
        and d.refclassid = 'pg_class'::regclass and d.refobjid <> v.oid
), behind as (
    select reached.listed, reached.role, c.*
    from reached
    join relation c on c.oid = reached.oid
    where c.relkind <> 'v' and not c.is_system
), policy as (
    select
        p.polname, p.polrelid, p.polroles, p.polpermissive, p.polcmd::text as command,
        text_of.sees,
        strpos(lower(text_of.sees), call.text) > 0 or by_function.reads as sees_by_tenant,
        strpos(lower(coalesce(text_of.writes, text_of.sees)), call.text) > 0 or by_function.reads as writes_by_tenant
    from pg_policy p
    cross join (select 'current_setting(''' || lower(%(tenant_setting)s) || '''') as call (text)
    cross join lateral (
        select pg_get_expr(p.polqual, p.polrelid) as sees, pg_get_expr(p.polwithcheck, p.polrelid) as writes
    ) text_of
    cross join lateral (
        select coalesce(bool_or(
            strpos(lower(coalesce(nullif(f.prosrc, ''), pg_get_function_sqlbody(f.oid))), call.text) > 0
        ), false) as reads
        from pg_depend d
        join pg_proc f on f.oid = d.refobjid
        where d.classid = 'pg_policy'::regclass and d.objid = p.oid and d.refclassid = 'pg_proc'::regclass
    ) by_function
)
select
    listed.full_name, listed.kind,
    behind.full_name as behind, behind.relkind::text as behind_kind, r.rolname as role,
    case
        when r.rolsuper then 'superuser' when r.rolbypassrls then 'BYPASSRLS'
        when behind.relrowsecurity and not behind.relforcerowsecurity and is_owner.so then 'owner'
    end as bypass,
    coalesce(behind.relrowsecurity, false) as enabled,
    (
        with recursive above (oid) as (
            select i.inhparent from pg_inherits i where i.inhrelid = behind.oid
            union
            select i.inhparent from pg_inherits i join above on i.inhrelid = above.oid
        )
        select min(a.full_name) from above join relation a on a.oid = above.oid where a.relrowsecurity
    ) as protected_parent,
    coalesce(
        behind.oid = listed.oid and not is_owner.so and has_table_privilege(r.oid, behind.oid, 'truncate'), false
    ) as may_truncate,
    coalesce(applying.permits, false) as has_policy,
    coalesce(applying.reads_tenant, false) as has_tenant_policy,
    applying.opened_by,
    coalesce(applying.opened_to_all, false) as opened_to_all
from listed
left join behind on behind.listed = listed.oid
left join pg_roles r on r.oid = behind.role
left join lateral (select pg_has_role(r.oid, behind.relowner, 'usage')) as is_owner (so) on true
left join lateral (
    select
        bool_or(p.polpermissive) as permits,
        bool_or(p.by_tenant) as reads_tenant,
        min(p.polname::text) filter (where p.opens) as opened_by,
        bool_or(p.sees = 'true') filter (where p.opens) as opened_to_all
    from (
        select
            one.*,
            one.polpermissive and not one.by_tenant
                and not coalesce(bool_or(one.by_tenant and not one.polpermissive) over (partition by one.given), false) as opens
        from (
            select
                policy.polname, policy.polpermissive, policy.sees, given.given,
                coalesce(
                    case given.given
                        when 'a' then policy.writes_by_tenant
                        when 'w' then policy.sees_by_tenant and policy.writes_by_tenant
                        else policy.sees_by_tenant
                    end,
                    false
                ) as by_tenant
            from policy
            join unnest(listed.commands) given (given) on policy.command in ('*', given.given)
            where policy.polrelid = behind.oid
                and exists (
                    select from unnest(policy.polroles) member (oid)
                    where case when member.oid = 0 then true else pg_has_role(r.oid, member.oid, 'usage') end
                )
        ) one
    ) p
) applying on true
order by listed.full_name, behind.full_name, r.rolname
