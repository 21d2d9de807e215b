-- runs: how the runs of a job ended, the last ones if there are very many.
select latest.*
from (
    select
        r.fence, r.attempt, r.worker, r.started_at, r.finished_at, r.outcome, r.error::text as error, r.stack, r.max_rss
    from fencepost.job_runs r
    where r.job_id = %(id)s::bigint
    order by r.fence desc
    limit %(limit)s
) latest
order by latest.fence
