-- hold: raises unless the run still holds its job, and else keeps the row locked to the end of the transaction.
select fencepost.hold(%(job_id)s, %(fence)s, %(name)s)
