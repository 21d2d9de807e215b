-- reports: by which attempts the late writer's business row was written, past every policy.
select r.attempt from billing.reports r order by r.written_at
