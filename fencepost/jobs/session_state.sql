-- session_state: what a session is like, in what another job would notice first: each column is named as it is told where a job
-- has left it otherwise. Of some settings more the server tells by itself; all else is looked for by `left_in_session`.
-- Looked at after each job, in a message that makes the session as new: so nothing is read from anywhere, for what is planned
-- here is planned each time; and no setting is asked for that the begin of a transaction sets, since it may be asked behind one.
-- Every name with its schema: what a job has left may be a search path.
select
    coalesce(
        pg_catalog.current_setting(coalesce(nullif(%(tenant_setting)s, ''), 'fencepost_job.tenant'), true), ''
    ) as "the tenant",
    pg_catalog.current_setting('role') as "a role",
    pg_catalog.current_setting('search_path') as "search_path"
