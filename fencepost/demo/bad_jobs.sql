-- bad_jobs: where each bad job stands, with how its runs so far have ended.
select
    j.id, j.kind, j.status, j.attempts, j.max_attempts,
    extract(epoch from coalesce(j.finished_at, clock_timestamp()) - ended.first_start)::float8 as took,
    coalesce(ended.runs, '{}') as runs
from fencepost.jobs j
left join lateral (
    select
        min(r.started_at) as first_start,
        array_agg(
            json_build_object(
                'attempt', r.attempt, 'outcome', r.outcome, 'error', coalesce(r.error, '{}'), 'stack', r.stack,
                'seconds', extract(epoch from r.finished_at - r.started_at)
            ) order by r.fence
        ) as runs
    from fencepost.job_runs r
    where r.job_id = j.id
) ended on true
where starts_with(j.kind, 'bad.')
order by j.id
