create schema torture;

-- What runs have committed. Tenant and token are what the server finds set in the transaction, not what the job says: the token
-- is there only in a transaction that was begun for a run.
create table torture.effects (
    id bigint generated always as identity primary key,
    job bigint not null,
    fence bigint not null,
    step int not null,
    pid int not null,
    tenant text not null default coalesce(current_setting('app.tenant', true), ''),
    token text not null default coalesce(current_setting('fencepost_job.run', true), '')
);

-- Each change of a job's state, whoever made it. The row is written in the transaction of the change.
create table torture.changes (
    id bigint generated always as identity primary key,
    job bigint not null,
    fence bigint not null,
    status text not null
);

create function torture.note_change() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    insert into torture.changes (job, fence, status) values (new.id, new.fence, new.status);
    return null;
end
$$;

create trigger note_enqueue after insert on fencepost.jobs for each row execute function torture.note_change();
create trigger note_change after update on fencepost.jobs for each row
    when ((old.status, old.fence) is distinct from (new.status, new.fence)) execute function torture.note_change();
