-- proxied: whether this session keeps what we asked of it at its start, and who serves it: behind a pooler not whom the client
-- was told. Asked in one statement, since the next may be another session's.
select current_setting('fencepost_job.session', true) = 'ours' as kept, pg_backend_pid() as backend
