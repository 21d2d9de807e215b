-- marked: how many transactions of a worker are still open, but for this one, by the lock that `ours` takes. None is ended: the
-- session may be another client's by the time that is sent. The pooler closes a dead client's session, and the server then ends
-- the statement by itself.
select count(*) as still_there
from pg_locks l
cross join hashtextextended(%(application)s, 4182006) as key
where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
    and l.database = (select d.oid from pg_database d where d.datname = current_database())
    and l.classid::bigint = (key >> 32) & 4294967295 and l.objid::bigint = key & 4294967295
    and l.pid <> pg_backend_pid()
