-- claim: queued -> running, for one due job of a kind that this supervisor has a handler for; and before that, in the same
-- commit, the outcome of the run that has just ended, if there is one (`job_id` is null where there is none).
-- The attempt is counted before any of the job's code runs: counted later, a job that kills its worker would be handed
-- out for ever. `fence` never repeats for a job, so with `locked_by` it names this claim alone; attempts may be given back.
--
-- The search reads the finish, and so comes after it: else it could lock the next job while the finish waits for a lock, as a
-- cancel of many holds them, and the two wait for each other (protocol, rule 9). A finish that is void claims all the same.
-- What the finish puts back is not seen yet by this statement's snapshot.
--
-- Lanes are the pairs of queue and priority, in the order they are to be tried. Each is searched from behind the last key
-- that this worker took there: the index still holds the entries of claimed jobs for as long as a transaction is open
-- elsewhere, and from its start each claim would walk all of them.
--
-- Due is what is due now, unless `due_by` says another moment: in a transaction that has been open for a while, now() is when
-- it began.
--
-- One row, whatever plan the server chooses: the CTE is materialized and limited, and the update takes its id by value.
-- (`where id in (select ... limit 1 for update skip locked)` may run the subquery once for each row.) Lanes are tried in
-- turn, since a lateral join can only be a nested loop over them, and the limit ends it at the first row that is found.
with finished as materialized (
    select case when %(job_id)s::bigint is not null then fencepost.finish(
        %(job_id)s::bigint, %(fence)s::bigint, %(name)s::text, %(outcome)s::text, wait => %(wait)s::interval,
        final => %(final)s::boolean, result => %(result)s::jsonb, error => %(error)s::jsonb, summary => %(summary)s::text,
        stack => %(stack)s::text, max_rss => %(max_rss)s::bigint
    ) end as held_to_the_end
), next as materialized (
    select found.id
    from unnest(%(queues)s::text[], %(priorities)s::int[], %(after_run_at)s::timestamptz[], %(after_id)s::bigint[])
        as lane (queue, priority, after_run_at, after_id)
    cross join lateral (
        select j.id
        from fencepost.jobs j
        where j.status = 'queued' and j.queue = lane.queue and j.priority = lane.priority
            and (j.run_at, j.id) > (lane.after_run_at, lane.after_id)
            and j.run_at <= coalesce(%(due_by)s::timestamptz, now())
            and j.kind = any (%(kinds)s::text[])
        order by j.run_at, j.id
        limit 1
        for no key update of j skip locked
    ) found
    where (select count(*) from finished) >= 0
    limit 1
), claimed as (
    update fencepost.jobs j set
        status = 'running',
        attempts = j.attempts + 1,
        max_attempts = coalesce(j.max_attempts, (%(max_attempts)s::int[])[array_position(%(kinds)s::text[], j.kind)]),
        fence = j.fence + 1,
        locked_by = %(claim)s::text,
        locked_until = clock_timestamp() + %(lease)s::interval,
        started_at = clock_timestamp()
    where j.id = (select next.id from next)
    returning
        j.id, j.fence, j.locked_by as name, j.queue, j.kind, j.payload::text as payload, j.tenant_id as tenant, j.priority,
        j.run_at, j.attempts as attempt, j.max_attempts, j.max_runtime, j.created_at,
        -- Durable on this server whatever the session's setting: the attempt of a job that crashes the server stays counted.
        case when current_setting('synchronous_commit') = 'off' then set_config('synchronous_commit', 'local', true) end
            as made_durable
)
select
    finished.held_to_the_end,
    claimed.id, claimed.fence, claimed.name, claimed.queue, claimed.kind, claimed.payload, claimed.tenant, claimed.priority,
    claimed.run_at, claimed.attempt, claimed.max_attempts, claimed.max_runtime, claimed.created_at, claimed.made_durable
from finished
left join claimed on true
