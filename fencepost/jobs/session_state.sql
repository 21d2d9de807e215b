-- session_state: what a session is like, in what another job would notice first: each column is named as it is told where a job
-- has left it otherwise. Looked at after each job, in the message that makes the session as new: so nothing is read from anywhere,
-- for what is planned here is planned each time. All else is looked for by `left_in_session`.
-- Every name with its schema: what a job has left may be a search path.
select
    coalesce(
        pg_catalog.current_setting(coalesce(nullif(%(tenant_setting)s, ''), 'fencepost_job.tenant'), true), ''
    ) as "the tenant",
    pg_catalog.current_setting('role') as "a role",
    pg_catalog.current_setting('search_path') as "search_path",
    pg_catalog.current_setting('row_security') as "row_security",
    pg_catalog.current_setting('TimeZone') as "TimeZone",
    pg_catalog.current_setting('DateStyle') as "DateStyle",
    pg_catalog.current_setting('IntervalStyle') as "IntervalStyle",
    pg_catalog.current_setting('client_encoding') as "client_encoding",
    pg_catalog.current_setting('application_name') as "application_name",
    pg_catalog.current_setting('statement_timeout') as "statement_timeout",
    pg_catalog.current_setting('lock_timeout') as "lock_timeout",
    pg_catalog.current_setting('default_transaction_isolation') as "default_transaction_isolation",
    pg_catalog.current_setting('default_transaction_read_only') as "default_transaction_read_only",
    pg_catalog.current_setting('session_replication_role') as "session_replication_role",
    pg_catalog.current_setting('synchronous_commit') as "synchronous_commit",
    pg_catalog.current_setting('work_mem') as "work_mem"
