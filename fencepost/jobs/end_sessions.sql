-- end_sessions: end the other sessions of a worker, and tell how many there still were. A dead client's statement runs on for
-- as long as it likes, and one that was fully sent may still commit. They are known by the worker's random name, which libpq
-- gives to each connection that the worker's process opens, and are ended as they are read: no number is kept that could be
-- another's by then.
select count(pg_terminate_backend(a.pid)) as still_there
from pg_stat_activity a
where a.application_name = %(application)s and a.pid <> pg_backend_pid()
