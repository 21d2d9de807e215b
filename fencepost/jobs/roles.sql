-- roles: those that Fencepost needs, as `fencepost migrate --roles` prints them.
--
-- Run this twice, as a superuser or as a role that may create roles and schemas: before the first `fencepost migrate` and after
-- it; and after every later one, which may have brought something to grant. What is there already stays as it is. Between the
-- two, migrate as the owner:
--
--     PGOPTIONS='-c role=fencepost_owner' fencepost migrate

do $$
begin
    -- Owns Fencepost's tables and functions. Nobody logs in as it: who migrates takes it on.
    if not exists (select from pg_roles where rolname = 'fencepost_owner') then
        create role fencepost_owner nologin;
    end if;
    -- The login of `fencepost run`. It owns nothing, and bypasses no row-level security. Give it a password.
    if not exists (select from pg_roles where rolname = 'fencepost_worker') then
        create role fencepost_worker login noinherit;
    end if;
    -- As whom jobs work: FENCEPOST_JOB_ROLE. All that your jobs may do to your tables is granted to it, and to no other.
    if not exists (select from pg_roles where rolname = 'fencepost_job') then
        create role fencepost_job nologin;
    end if;
    -- May enqueue, get, cancel and retry jobs, and read no table. Your application's login becomes a member.
    if not exists (select from pg_roles where rolname = 'fencepost_enqueuer') then
        create role fencepost_enqueuer nologin;
    end if;
    if not (select rolsuper from pg_roles where rolname = current_user) then
        grant fencepost_owner to current_user;
    end if;
    if not exists (select from pg_namespace where nspname = 'fencepost') then
        create schema fencepost authorization fencepost_owner;
    end if;
end
$$;

-- The worker takes it on in a job's transactions alone, and has none of its rights otherwise.
grant fencepost_job to fencepost_worker;

do $$
begin
    grant usage on schema fencepost to fencepost_worker;
    grant usage on schema fencepost to fencepost_job;
    grant usage on schema fencepost to fencepost_enqueuer;
    if not exists (select from pg_tables where schemaname = 'fencepost' and tablename = 'jobs') then
        raise notice 'the tables are not there yet: migrate now as the owner, and run this again';
        return;
    end if;

    grant select, update on fencepost.jobs to fencepost_worker;
    grant select on fencepost.job_runs, fencepost.schema_version to fencepost_worker;
    grant select, insert, update, delete on fencepost.supervisors to fencepost_worker;
    grant execute on function fencepost.enqueue, fencepost.enqueue_many, fencepost.hold, fencepost.finish to fencepost_worker;
    grant execute on function fencepost.prune to fencepost_worker;

    grant execute on function fencepost.enqueue, fencepost.enqueue_many, fencepost.hold, fencepost.finish to fencepost_job;

    grant execute on function
        fencepost.enqueue, fencepost.enqueue_many, fencepost.get, fencepost.cancel, fencepost.retry
    to fencepost_enqueuer;
end
$$;

-- Then, for your own:
--
--     grant fencepost_enqueuer to app;                       -- your application's login
--     grant fencepost_enqueuer to fencepost_job;             -- if jobs get, cancel or retry others of their tenant
--     grant select, insert on invoices to fencepost_job;     -- what your jobs need, and nothing more
--
-- A policy that reads the tenant, so that no tenant is no row; without nullif it would be an error:
--
--     alter table invoices enable row level security, force row level security;
--     create policy tenants on invoices
--         using (tenant_id = nullif(current_setting('app.tenant', true), '')::int);
--
-- Run workers with FENCEPOST_JOB_ROLE=fencepost_job. `fencepost check` names what is missing, `fencepost check --tables` which
-- tables are protected.
