-- The queue: its tables, and the functions that others than a supervisor call.
--
-- Every name is written with its schema. The loader puts FENCEPOST_SCHEMA's name in place of `fencepost.` and of the
-- literal 'fencepost', so nothing here depends on a search_path, and the functions pin theirs.
--
--                      claim                    finish: done
--     enqueue -> queued ------> running -----------------------------> done
--                  ^              | failed, crashed, overran: counted; attempts left: queued, run_at pushed back
--                  |              | lost: counted; attempts left: queued at once
--                  |              +- none left ----------------------> dead        (given up: dead at once)
--                  +--------------+- interrupted, snoozed: uncounted, queued
--     cancel: queued -> cancelled at once; running -> asked to stop, killed if it does not -> cancelled
--     retry (by hand): dead, cancelled -> queued, with a fresh budget; the fence goes on counting

create table fencepost.schema_version (
    version int not null,
    applied_at timestamptz not null default now(),
    only_row boolean primary key default true,
    constraint there_is_one_version check (only_row)
);

-- What is right by itself, whatever state the job is in, is a type. It is looked at as it is written: a CHECK of the table's is
-- planned and evaluated with each update of a row, and so twice a job.
create domain fencepost.queue_name as text
    constraint queue_has_a_name check (value <> '' and octet_length(value) <= 128);
create domain fencepost.kind_name as text
    constraint kind_has_a_name check (value <> '' and octet_length(value) <= 256);
create domain fencepost.tenant as text
    constraint tenant_is_not_blank check (value !~ '^\s*$' and octet_length(value) <= 256);
create domain fencepost.unique_name as text
    constraint unique_key_has_a_name check (value <> '' and octet_length(value) <= 1024);
create domain fencepost.budget as int
    constraint a_budget_allows_one_attempt check (value >= 1);
-- Within what every client can read: a claim that can't be read is a job that runs for no one.
create domain fencepost.moment as timestamptz
    constraint run_at_is_a_date check (value >= '0001-01-02 00:00+00' and value < '9999-12-31 00:00+00');
create domain fencepost.duration as interval
    constraint max_runtime_is_a_duration check (value > interval '0' and value < interval '10000 days');

create table fencepost.jobs (
    id bigint generated always as identity primary key,
    queue fencepost.queue_name not null default 'default',
    kind fencepost.kind_name not null,
    payload jsonb not null default '{}',
    tenant_id fencepost.tenant,
    priority int not null default 0,
    run_at fencepost.moment not null default now(),
    status text not null default 'queued',
    attempts int not null default 0,
    -- Null until the first claim, if the enqueuer did not say: then the handler's, which only a worker knows.
    max_attempts fencepost.budget,
    interruptions int not null default 0,
    -- Counts claims. It never goes down, not even when an attempt is given back.
    fence bigint not null default 0,
    locked_until timestamptz,
    -- The worker's random name and the number of its claim: unlike the fence it is not repeated after a failover that
    -- lost commits, and unlike host and pid it is not repeated by the next container.
    locked_by text,
    max_runtime fencepost.duration,
    unique_key fencepost.unique_name,
    progress jsonb,
    result jsonb,
    last_error text,
    cancel_requested_at timestamptz,
    created_at timestamptz not null default now(),
    started_at timestamptz,
    finished_at timestamptz,

    constraint status_is_known check (status in ('queued', 'running', 'done', 'dead', 'cancelled')),
    constraint only_a_running_job_is_leased
        check ((status = 'running') = (locked_until is not null) and (status = 'running') = (locked_by is not null)),
    constraint only_a_job_at_rest_is_finished
        check ((status in ('done', 'dead', 'cancelled')) = (finished_at is not null)),
    constraint only_a_done_job_has_a_result check (result is null or status = 'done'),
    constraint a_running_job_is_counted check (status <> 'running' or (attempts >= 1 and started_at is not null)),
    constraint attempts_stay_in_budget check (attempts >= 0 and attempts <= coalesce(max_attempts, 0)),
    constraint a_waiting_job_has_attempts_left
        check (status <> 'queued' or max_attempts is null or attempts < max_attempts),
    constraint a_waiting_job_is_not_to_be_cancelled check (status <> 'queued' or cancel_requested_at is null),
    constraint a_run_was_claimed check (fence >= attempts and interruptions >= 0 and fence >= interruptions)
);

-- Claims walk this index in order. It still holds the entries of claimed jobs while an old transaction is open
-- elsewhere, which is why a claim starts behind the last key that it took (claim.sql).
create index jobs_waiting on fencepost.jobs (queue, priority, run_at, id) where status = 'queued';
-- The sweep walks this one, by when runs began: an index with `locked_until` in it would get an entry at each heartbeat, and
-- with it all the others (an update is HOT only where no index has a changed column).
-- `status` alone is its predicate: finish.sql does not mention it, and so can't be planned over the dead entries here instead
-- of over the primary key.
create index jobs_leased on fencepost.jobs (started_at) where status = 'running';
create index jobs_dead on fencepost.jobs (finished_at) where status = 'dead';
-- Over queued and running together, so that no way back from running to queued can fail on it.
-- A key is one of its tenant's: another's job must not be found by it, nor keep this one's from being made.
create unique index jobs_unique_key on fencepost.jobs (unique_key, coalesce(tenant_id, ''))
    where unique_key is not null and status in ('queued', 'running');

create table fencepost.job_runs (
    -- No foreign key, which would look the job up and lock it with each finish, that has just written it. The other way round
    -- a trigger stands for it: runs go with their job.
    job_id bigint not null,
    fence bigint not null,
    attempt int not null,
    worker text not null,
    tenant_id text,
    started_at timestamptz not null,
    finished_at timestamptz not null default clock_timestamp(),
    outcome text not null,
    error jsonb,
    stack text,
    -- Bytes: the peak of the worker's process, as the kernel counted it.
    max_rss bigint,
    -- What makes an outcome idempotent: a finish that is sent again finds itself here.
    primary key (job_id, fence),
    constraint outcome_is_known check (outcome in
        ('done', 'failed', 'crashed', 'overran', 'lost', 'interrupted', 'snoozed', 'cancelled'))
);

create function fencepost.forget_runs() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    if tg_op = 'TRUNCATE' then
        -- Not by the same verb: both may be truncated in one statement.
        delete from fencepost.job_runs;
    else
        delete from fencepost.job_runs r using gone where r.job_id = gone.id;
    end if;
    return null;
end
$$;

create trigger runs_go_with_their_job after delete on fencepost.jobs
    referencing old table as gone for each statement execute function fencepost.forget_runs();
create trigger runs_go_with_all_jobs after truncate on fencepost.jobs
    for each statement execute function fencepost.forget_runs();

create table fencepost.supervisors (
    name text primary key,
    host text not null,
    pid int not null,
    version text not null,
    -- Null until its first worker is ready: only a worker knows them.
    kinds text[],
    queues text[] not null,
    lease interval not null,
    heartbeat interval not null,
    listening boolean not null,
    -- Whether it is to be told of what is enqueued (see `tell`): not where it would not hear, nor while none of its workers idles.
    told boolean not null default true,
    state text not null,
    slots jsonb not null default '[]',
    started_at timestamptz not null default clock_timestamp(),
    seen_at timestamptz not null default clock_timestamp()
);


-- refusal: why a job can't be enqueued, in a sentence, or null if it can. Read where a job is given, by functions whose
-- search_path is pinned; without one of its own it is a part of their statements, and costs a bulk no call for each job.
create function fencepost.refusal(kind text, payload jsonb, tenant text, run_at timestamptz, after interval) returns text
language sql stable
as $$
    select case
        when kind is null or kind = '' then 'a job needs a kind'
        when payload is null or jsonb_typeof(payload) <> 'object'
            then 'the payload of a job must be a JSON object, not ' || coalesce(jsonb_typeof(payload), 'null')
        when octet_length(payload::text) > 1048576
            then 'the payload is ' || octet_length(payload::text)
                || ' bytes of JSON, and may be 1048576: keep large data elsewhere and enqueue its key'
        when tenant ~ '^\s*$' then 'the tenant is blank: give its id, or null for a job without tenant'
        when run_at is not null and after is not null then 'give run_at or after, not both'
    end
$$;


-- tell: wakes supervisors, with the caller's commit and never before, for a job that waits in a queue. The channel is the schema's
-- name; the queue tells a supervisor whether it need look. For a scheduled job too: it then knows until when it may sleep.
-- Only where one wants to be told. Commits that notify wait for each other, through their flush to the disk: at full speed, when
-- all workers are busy and look for their next job anyway, enqueuing would be as slow as one session is.
-- The flag is read here and the job committed later, so a supervisor may have begun to want it in between. Whoever does looks for
-- work once that is committed: what is committed before is found so, and what is committed later has read the flag. What has read
-- it before and is committed later is found by further looks, soon and then less and less often, until the next poll. (Under
-- REPEATABLE READ it is read as it was at the transaction's first statement.)
-- A supervisor that has no row yet looks once it has. One that is gone and left its row is told in vain.
create function fencepost.tell(queue text) returns void
language plpgsql set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
    if exists (select from fencepost.supervisors s where s.told and (queue = any (s.queues) or '*' = any (s.queues))) then
        perform pg_notify('fencepost', queue);
    end if;
end
$$;


-- enqueue: a job in the caller's own transaction; it exists if and only if that commits. Returns its id, or the id of
-- the queued or running job that has the unique key already.
-- Left out, the tenant is that of the job in whose transaction this is called, if it is in one; null says none.
create function fencepost.enqueue(
    kind text,
    payload jsonb default '{}',
    tenant text default nullif(current_setting('fencepost_job.tenant', true), ''),
    queue text default 'default',
    priority int default 0,
    run_at timestamptz default null,
    after interval default null,
    max_attempts int default null,
    max_runtime interval default null,
    unique_key text default null
) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    refused text := fencepost.refusal(enqueue.kind, enqueue.payload, enqueue.tenant, enqueue.run_at, enqueue.after);
    new_id bigint;
begin
    if refused is not null then
        raise exception using errcode = '22023', message = refused;
    end if;

    -- The other session of a race for one key may still roll back, so the insert waits for it. What it waited for may
    -- then be finished before it is read here: try again, until one of the two holds.
    loop
        insert into fencepost.jobs as j (queue, kind, payload, tenant_id, priority, run_at, max_attempts, max_runtime, unique_key)
        values (coalesce(enqueue.queue, 'default'), enqueue.kind, enqueue.payload, enqueue.tenant, coalesce(enqueue.priority, 0),
                coalesce(enqueue.run_at, now() + coalesce(enqueue.after, interval '0')), enqueue.max_attempts, enqueue.max_runtime, enqueue.unique_key)
        on conflict (unique_key, coalesce(tenant_id, '')) where unique_key is not null and status in ('queued', 'running') do nothing
        returning j.id into new_id;
        exit when new_id is not null;
        select j.id into new_id from fencepost.jobs j
        where j.unique_key = enqueue.unique_key and coalesce(j.tenant_id, '') = coalesce(enqueue.tenant, '')
            and j.status in ('queued', 'running');
        if new_id is not null then
            return new_id;
        end if;
    end loop;

    perform fencepost.tell(coalesce(enqueue.queue, 'default'));
    return new_id;
end
$$;


-- enqueue_many: many jobs in the caller's own transaction, all or none. Each argument is an array with an element for each job,
-- which means what it means in `enqueue`; an array that is left out means what is left out there. For sets: array_agg makes them.
-- Returns the ids in the order of the jobs: where a unique key stands twice, both are the same.
create function fencepost.enqueue_many(
    kind text[],
    payload jsonb[] default null,
    tenant text[] default null,
    queue text[] default null,
    priority int[] default null,
    run_at timestamptz[] default null,
    after interval[] default null,
    max_attempts int[] default null,
    max_runtime interval[] default null,
    unique_key text[] default null
) returns bigint[]
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    jobs int := coalesce(cardinality(enqueue_many.kind), 0);
    own text := nullif(current_setting('fencepost_job.tenant', true), '');
    payloads jsonb[] := coalesce(enqueue_many.payload, array_fill(jsonb '{}', array[jobs]));
    tenants text[] := coalesce(enqueue_many.tenant, array_fill(own, array[jobs]));
    sequence regclass := pg_get_serial_sequence(format('%I.jobs', 'fencepost'), 'id');
    wrong record;
    job record;
    ids bigint[];
begin
    if jobs <> any (array_remove(array[
        cardinality(payloads), cardinality(tenants), cardinality(enqueue_many.queue), cardinality(enqueue_many.priority),
        cardinality(enqueue_many.run_at), cardinality(enqueue_many.after), cardinality(enqueue_many.max_attempts),
        cardinality(enqueue_many.max_runtime), cardinality(enqueue_many.unique_key)
    ], null)) then
        raise exception 'each array must have an element for each of the % kinds', jobs using errcode = '22023';
    end if;
    select u.place, fencepost.refusal(u.kind, u.payload, u.tenant, u.run_at, u.after) as why into wrong
    from unnest(enqueue_many.kind, payloads, tenants, enqueue_many.run_at, enqueue_many.after)
        with ordinality as u (kind, payload, tenant, run_at, after, place)
    where fencepost.refusal(u.kind, u.payload, u.tenant, u.run_at, u.after) is not null
    limit 1;
    if found then
        raise exception using errcode = '22023', message = wrong.why, detail = 'This is said of job ' || wrong.place;
    end if;

    -- Jobs with a key get their id later, and may be others that are there already.
    ids := array(
        select case when u.unique_key is null then nextval(sequence) end
        from unnest(enqueue_many.kind, enqueue_many.unique_key) with ordinality as u (kind, unique_key, place)
        order by u.place
    );
    insert into fencepost.jobs (id, queue, kind, payload, tenant_id, priority, run_at, max_attempts, max_runtime)
    overriding system value
    select u.id, coalesce(u.queue, 'default'), u.kind, u.payload, u.tenant, coalesce(u.priority, 0),
        coalesce(u.run_at, now() + coalesce(u.after, interval '0')), u.max_attempts, u.max_runtime
    from unnest(
        ids, enqueue_many.kind, payloads, tenants, enqueue_many.queue, enqueue_many.priority, enqueue_many.run_at,
        enqueue_many.after, enqueue_many.max_attempts, enqueue_many.max_runtime
    ) as u (id, kind, payload, tenant, queue, priority, run_at, after, max_attempts, max_runtime)
    where u.id is not null;
    perform fencepost.tell(q.queue)
    from (
        select distinct coalesce(u.queue, 'default') as queue
        from unnest(ids, enqueue_many.queue) as u (id, queue)
        where u.id is not null
    ) as q;

    -- One after the other, in the order of their keys: whoever waits for the key of another transaction holds none that is
    -- behind it, so that two who enqueue the same keys at once do not deadlock.
    for job in
        select u.*
        from unnest(
            enqueue_many.kind, payloads, tenants, enqueue_many.queue, enqueue_many.priority, enqueue_many.run_at, enqueue_many.after,
            enqueue_many.max_attempts, enqueue_many.max_runtime, enqueue_many.unique_key
        ) with ordinality
            as u (kind, payload, tenant, queue, priority, run_at, after, max_attempts, max_runtime, unique_key, place)
        where u.unique_key is not null
        order by u.unique_key collate "C", coalesce(u.tenant, '') collate "C", u.place
    loop
        ids[job.place] := fencepost.enqueue(job.kind, job.payload, job.tenant, job.queue, job.priority, job.run_at, job.after,
                                            job.max_attempts, job.max_runtime, job.unique_key);
    end loop;
    return ids;
end
$$;


-- hold: raises unless the run still holds its job, and else keeps the row locked to the end of the transaction, so that
-- neither sweep nor cancel can take the job between this and the COMMIT that travels with it in one message.
-- A definer's function: a job's role needs no right on the queue.
-- Returns whether plans that the session keeps may have in them what was set in the transaction: where a function of the user's is
-- said to be immutable, and may read such a setting all the same. Functions in C are those of extensions, which know what they
-- say. Where there are many functions, looking through them would take longer than planning anew.
-- From 16384 on objects are users'; 13 is C: PostgreSQL keeps both numbers for good (access/transam.h, catalog/pg_language.dat).
-- A session keeps its plan, and `finish`'s, from job to job: one of when the table was small must not walk all of a large one.
-- A walk that can't be had otherwise, of the few supervisors by `tell`, is thought so dear then that it would be compiled.
create function fencepost.hold(job_id bigint, fence bigint, name text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
as $$
#variable_conflict use_variable
begin
    -- The token is set locally at the start of the job's transaction. Without it the job has ended that transaction
    -- itself, and this is another one that nobody set a tenant for.
    if current_setting('fencepost_job.run', true) is distinct from name then
        raise exception 'the job ended its transaction itself' using errcode = 'FP002';
    end if;
    perform from fencepost.jobs j
    where j.id = job_id and j.fence = fence and j.locked_by = name and j.locked_until is not null
    for no key update;
    if not found then
        raise exception 'job % is no longer held under fence %', job_id, fence using errcode = 'FP001';
    end if;
    return (
        select count(*) = 100 or coalesce(bool_or(f.provolatile = 'i' and f.prolang <> 13), false)
        from (select p.provolatile, p.prolang from pg_proc p where p.oid >= 16384 order by p.oid limit 100) f
    );
end
$$;


-- finish: writes the outcome of a run under its fence, and where that leaves the job. False if the run no longer holds
-- the job: then nothing is written, unless this same outcome was (an answer was lost, and it is sent again).
--   wait   until the next attempt, for failed, crashed, overran and snoozed
--   final  no further attempt, whatever is left of the budget
create function fencepost.finish(
    job_id bigint,
    fence bigint,
    name text,
    outcome text,
    wait interval default interval '0',
    final boolean default false,
    result jsonb default null,
    error jsonb default null,
    summary text default null,
    stack text default null,
    max_rss bigint default null
) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
as $$
#variable_conflict use_variable
declare
    job record;
    given_back boolean;
    next_status text;
begin
    -- By primary key: `status = 'running'` here could be planned over the index of leases and walk its dead entries.
    if outcome = 'done' then
        -- What has returned is done, whatever else was asked for meanwhile: there is nothing to read first.
        update fencepost.jobs j set
            status = 'done', locked_until = null, locked_by = null, result = result, finished_at = clock_timestamp(),
            last_error = coalesce(summary, j.last_error)
        where j.id = job_id and j.fence = fence and j.locked_by = name and j.locked_until is not null
        returning j.attempts, j.started_at, j.tenant_id into job;
    else
        select j.attempts, j.max_attempts, j.interruptions, j.cancel_requested_at, j.started_at, j.tenant_id, j.queue
        into job
        from fencepost.jobs j
        where j.id = job_id and j.fence = fence and j.locked_by = name and j.locked_until is not null
        for no key update;
    end if;
    if not found then
        return exists (select from fencepost.job_runs r
                       where r.job_id = job_id and r.fence = fence and r.worker = name and r.outcome = outcome);
    end if;

    if outcome <> 'done' then
        -- Interrupted twenty times, a job is more likely to be what gets its pod evicted than to be unlucky.
        given_back := outcome = 'snoozed' or (outcome = 'interrupted' and job.interruptions < 20);
        next_status := case
            when outcome = 'cancelled' or job.cancel_requested_at is not null then 'cancelled'
            when given_back then 'queued'
            when final or job.attempts >= job.max_attempts then 'dead'
            else 'queued'
        end;

        update fencepost.jobs j set
            status = next_status,
            attempts = j.attempts - given_back::int,
            interruptions = j.interruptions + (outcome = 'interrupted')::int,
            locked_until = null,
            locked_by = null,
            run_at = case
                when next_status = 'queued' and outcome in ('failed', 'crashed', 'overran', 'snoozed')
                    -- At most a century: what a handler asks for must not be a date that fails, and wedges the job.
                    then clock_timestamp() + least(wait, interval '36500 days')
                else j.run_at
            end,
            last_error = coalesce(summary, j.last_error),
            finished_at = case when next_status <> 'queued' then clock_timestamp() end
        where j.id = job_id;
    end if;

    insert into fencepost.job_runs (job_id, fence, attempt, worker, tenant_id, started_at, outcome, error, stack, max_rss)
    values (job_id, fence, job.attempts, name, job.tenant_id, job.started_at, outcome, error, stack, max_rss);
    if next_status = 'queued' then
        -- As for what is enqueued: supervisors know then when it is due, however far apart their polls are.
        perform fencepost.tell(job.queue);
    end if;
    return true;
end
$$;


-- cancel: by hand. A queued job is cancelled at once. A running one is asked to stop, and killed if it does not; it is
-- cancelled when its run ends, however that is, unless its handler has returned. At rest a job stays as it is.
-- Returns the status afterwards ('running': it was asked), or null where there is no such job.
--   tenant   whose job it must be: another's is as one that is not there. In the transaction of a job that has a tenant it must be
--            that one's, whatever is said here. The same for `retry` and `get`.
create function fencepost.cancel(
    job_id bigint,
    tenant text default null
) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    own text := nullif(current_setting('fencepost_job.tenant', true), '');
    found_status text;
begin
    -- Claim, finish and sweep take the same lock: whichever of them and this comes first decides, and the other one reads
    -- what it has left. One row and by primary key, so that waiting for it can't be part of a deadlock.
    select j.status into found_status from fencepost.jobs j
    where j.id = job_id and (tenant is null or j.tenant_id = tenant) and (own is null or j.tenant_id = own)
    for no key update;
    if found_status = 'queued' then
        update fencepost.jobs j
        set status = 'cancelled', cancel_requested_at = clock_timestamp(), finished_at = clock_timestamp()
        where j.id = job_id;
        return 'cancelled';
    end if;
    if found_status = 'running' then
        update fencepost.jobs j set cancel_requested_at = clock_timestamp()
        where j.id = job_id and j.cancel_requested_at is null;
        -- No queue is called '': this tells the supervisors to beat now, and a beat's answer names what is to stop. Sent
        -- again for a job that was asked before, since a notification can be lost.
        perform pg_notify('fencepost', '');
    end if;
    return found_status;
end
$$;


-- retry: by hand. A dead or cancelled job is queued again, due at once, with a fresh budget; what its last run left as
-- error stays, and so does the fence. A queued job is left as it is.
--   status   the status afterwards, or null where there is no such job
--   refused  null if the job is queued; else why it is not, in a sentence. Not an error, which would take the rest of the
--            caller's transaction with it: one that can't be retried must not keep a thousand others from it.
create function fencepost.retry(
    job_id bigint,
    tenant text default null,
    out status text,
    out refused text
)
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    own text := nullif(current_setting('fencepost_job.tenant', true), '');
    job record;
    other record;
begin
    select j.status, j.queue, j.unique_key, j.tenant_id into job from fencepost.jobs j
    where j.id = job_id and (tenant is null or j.tenant_id = tenant) and (own is null or j.tenant_id = own)
    for no key update;
    if not found then
        refused := format('there is no job %s', job_id);
        return;
    end if;
    status := job.status;
    case job.status
        when 'queued' then
            return;
        when 'running' then
            refused := format('job %s is running: cancel it first, or let it end', job_id);
            return;
        when 'done' then
            refused := format('job %s is done: enqueue another one', job_id);
            return;
        else
            null;
    end case;
    -- A key is unique over queued and running, so this is the one way into the queue that can meet another job there. That
    -- one may come to rest before it is read: then try again, but not for ever, since under a stricter isolation the
    -- caller's snapshot can't see it at all.
    for turn in 1 .. 5 loop
        begin
            update fencepost.jobs j set
                status = 'queued', attempts = 0, interruptions = 0, run_at = now(),
                cancel_requested_at = null, finished_at = null
            where j.id = job_id;
            perform fencepost.tell(job.queue);
            status := 'queued';
            return;
        exception when unique_violation then
            select j.id, j.status into other from fencepost.jobs j
            where j.unique_key = job.unique_key and coalesce(j.tenant_id, '') = coalesce(job.tenant_id, '')
                and j.status in ('queued', 'running');
            exit when found;
        end;
    end loop;
    refused := case
        when other.id is null then format('job %s has the unique key of another job: try again', job_id)
        else format('job %s has the unique key of job %s, which is %s: cancel that one first, or let it end',
                    job_id, other.id, other.status)
    end;
end
$$;


-- get: a job as it stands, with what it has told and returned, or no row where there is none: for those that enqueue, who
-- need no right on the table for it.
create function fencepost.get(
    job_id bigint,
    tenant text default null
) returns setof fencepost.jobs
language sql stable security definer rows 1 set search_path = pg_catalog, pg_temp
as $$
    select * from fencepost.jobs j
    where j.id = job_id and (tenant is null or j.tenant_id = tenant)
        and j.tenant_id is not distinct from coalesce(nullif(current_setting('fencepost_job.tenant', true), ''), j.tenant_id)
$$;


-- prune: deletes what has been done or cancelled for longer than `age`, with its runs. A dead job is never deleted: it is there
-- for someone to look at and to retry, and nobody else remembers it.
-- Looks at the `span` ids behind `mark`, and at no more than `most` jobs. Jobs are made in the order of their ids, and none has
-- ended before it was made: the first that was made within `age` ends the look. So no index is needed that each finish would have
-- to keep, and a hundred million jobs of which none is old enough cost a step down the primary key. The span bounds what
-- can't be counted: gaps, and jobs deleted before that an old transaction elsewhere still keeps in the index.
--   mark     where the next look goes on
--   ripe     how many were to be deleted
--   deleted  how many were: the others are locked, by a retry or by another that prunes, which is not waited for
--   ended    whether nothing behind the mark can be old enough yet
create function fencepost.prune(
    age interval,
    inout mark bigint,
    span bigint,
    most int,
    out ripe int,
    out deleted int,
    out ended boolean
)
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    kept_since timestamptz := now() - age;
    newest bigint := (select s.last_value from fencepost.jobs_id_seq s);
    upto bigint := least(mark + span, newest);
    looked record;
begin
    -- The ids by value, so that no plan can have more looked at than these; and what is to be deleted is asked once more
    -- under its lock: it may have been retried meanwhile.
    -- A job that was made in the future, by a clock that was wrong, ends no look: it would do so until then.
    select
        count(*) as jobs, max(j.id) as last_id,
        min(j.id) filter (where j.is_young) as first_young,
        coalesce(array_agg(j.id) filter (where j.is_ripe), '{}') as ids
    into looked
    from (
        select
            j.id,
            j.created_at >= kept_since and j.created_at <= now() as is_young,
            j.status in ('done', 'cancelled') and j.finished_at < kept_since as is_ripe
        from fencepost.jobs j
        where j.id > mark and j.id <= upto
        order by j.id
        limit case
            -- One young job at the head, and nothing behind it is read.
            when (
                select j.created_at >= kept_since and j.created_at <= now()
                from fencepost.jobs j where j.id > mark and j.id <= upto order by j.id limit 1
            ) then 1
            else most
        end
    ) j;

    ripe := cardinality(looked.ids);
    deleted := 0;
    if ripe > 0 then
        with old as materialized (
            select j.id from fencepost.jobs j
            where j.id = any (looked.ids) and j.status in ('done', 'cancelled') and j.finished_at < kept_since
            order by j.id
            for update skip locked
        )
        delete from fencepost.jobs j where j.id = any (array(select old.id from old));
        get diagnostics deleted = row_count;
    end if;

    mark := case
        when looked.first_young is not null then looked.first_young - 1
        when looked.jobs = most then looked.last_id
        else upto
    end;
    ended := looked.first_young is not null or mark >= newest;
end
$$;


revoke all on function
    fencepost.refusal, fencepost.tell, fencepost.enqueue, fencepost.enqueue_many, fencepost.hold, fencepost.finish,
    fencepost.cancel, fencepost.retry, fencepost.get, fencepost.prune
from public;

-- Rows come to rest and leave quickly here: vacuum after a thousand of them rather than after a fifth of the table.
-- More than half of each page stays free: a heartbeat writes new versions of all running jobs in one transaction, and where a
-- page holds nothing else, each must find room there (HOT). Elsewhere they would get entries in all indexes.
alter table fencepost.jobs set (
    fillfactor = 45, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- Each run is written once, and goes with its job: pages are full until they are empty. No claim passes by what is dead here, so
-- a vacuum may go at its usual pace, but by a twentieth of the table rather than a fifth: a week's runs, pruned day by day, would
-- otherwise keep the room of another day and a half. The same for what was only inserted, so that a vacuum finds little new.
alter table fencepost.job_runs set (
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05
);
