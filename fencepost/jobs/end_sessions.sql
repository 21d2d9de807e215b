-- end_sessions: end the other sessions of a worker, and tell how many there still were. A dead client's statement runs on for
-- as long as it likes, and one that was fully sent may still commit. They are known by the worker's random name, which libpq
-- gives to each connection that the worker's process opens, and are ended as they are read: no number is kept that could be
-- another's by then. A job may have logged in as someone whose sessions we may not end: those are left to the server.
select count(pg_terminate_backend(a.pid)) as still_there
from pg_stat_activity a
join pg_roles theirs on theirs.oid = a.usesysid
join pg_roles ours on ours.rolname = current_user
where a.application_name = %(application)s and a.pid <> pg_backend_pid()
    and (ours.rolsuper or (not theirs.rolsuper and pg_has_role(ours.oid, theirs.oid, 'USAGE')))
