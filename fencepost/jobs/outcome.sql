-- outcome: how a run ended, if its end is on record. Asked when the answer to a COMMIT was lost.
select r.outcome from fencepost.job_runs r
where r.job_id = %(job_id)s and r.fence = %(fence)s and r.worker = %(name)s
