-- rights: what a supervisor's login, and the role of its jobs, must be allowed and are not, each with the grant that
-- cures it. Objects are known by oid: asked by name, a schema without USAGE would be an error and not an answer.
with need (is_for, object, name, privileges) as (
    values
        ('login', 'schema', '', '{usage}'::text[]),
        ('login', 'table', 'jobs', '{select,update}'),
        ('login', 'table', 'job_runs', '{select}'),
        ('login', 'table', 'supervisors', '{select,insert,update,delete}'),
        ('login', 'table', 'schema_version', '{select}'),
        ('login', 'function', 'enqueue', '{execute}'),
        ('login', 'function', 'enqueue_many', '{execute}'),
        ('login', 'function', 'hold', '{execute}'),
        ('login', 'function', 'finish', '{execute}'),
        ('login', 'function', 'prune', '{execute}'),
        ('job', 'schema', '', '{usage}'),
        ('job', 'function', 'hold', '{execute}'),
        ('job', 'function', 'finish', '{execute}')
), missing as (
    select
        r.rolname as role, need.object, need.name,
        quote_ident(n.nspname) || case when need.name <> '' then '.' || quote_ident(need.name) else '' end as full_name,
        string_agg(p.privilege, ', ' order by p.place) as privileges
    from need
    cross join lateral unnest(need.privileges) with ordinality as p (privilege, place)
    join pg_roles r on r.rolname = case need.is_for when 'login' then current_user else %(job_role)s end
    join pg_namespace n on n.nspname = 'fencepost'
    left join pg_class c on need.object = 'table' and c.relnamespace = n.oid and c.relname = need.name
    left join pg_proc f on need.object = 'function' and f.pronamespace = n.oid and f.proname = need.name
    where not case need.object
        when 'schema' then has_schema_privilege(r.oid, n.oid, p.privilege)
        when 'table' then has_table_privilege(r.oid, c.oid, p.privilege)
        when 'function' then has_function_privilege(r.oid, f.oid, p.privilege)
    end
    group by r.rolname, need.object, need.name, n.nspname
)
select
    role, object, name, full_name, privileges,
    'grant ' || privileges || ' on ' || object || ' ' || full_name || ' to ' || quote_ident(role) as cure
from missing
order by object = 'function', name, role
