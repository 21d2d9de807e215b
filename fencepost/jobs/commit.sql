-- commit: a transaction of a job, only if its run still holds the job. One message: if `hold` raises, COMMIT is skipped; and
-- a client that freezes between the two can't keep the row locked for ever.
-- Deferred constraints come first, so that no trigger of the user's runs while the row is locked.
set constraints all immediate;
select fencepost.hold(%(job_id)s, %(fence)s, %(name)s);
commit
