-- ours: what a session behind a pooler is to say again, since RESET ALL took that too. `tracked` is what the pooler itself keeps
-- for each of its clients and reads off the server's answers: set for the session, or the client would have lost it. `local` is
-- for this transaction.
-- `mark` names the worker whose transaction it is, as a lock: nothing else tells whose transactions are still open, as a session's
-- name may by now be that of another client's.
select set_config(s.name, s.value, false) from jsonb_each_text(%(tracked)s::jsonb) as s (name, value)
union all
select set_config(s.name, s.value, true) from jsonb_each_text(%(local)s::jsonb) as s (name, value)
union all
select pg_advisory_xact_lock_shared(hashtextextended(%(mark)s, 4182006))::text where %(mark)s <> ''
