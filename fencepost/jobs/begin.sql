-- begin: a transaction of a job, in one message: the tenant and the role are set locally, and so is the run's token, which
-- `hold` demands at the end: a job that has ended this transaction itself is found out by its absence.
-- READ COMMITTED whatever the default is: under a stricter one the fence would fail with 40001 once a heartbeat had touched
-- the row. The time limits are what is left of the run: they end what a vanished machine or a stray copy left on the server.
-- The role comes last, since it may not be allowed the rest.
begin isolation level read committed read write;
select
    set_config('fencepost_job.run', %(name)s, true),
    set_config(coalesce(nullif(%(tenant_setting)s, ''), 'fencepost_job.tenant'), %(tenant)s, true),
    set_config('statement_timeout', %(time_left)s, true),
    set_config('idle_in_transaction_session_timeout', %(time_left)s, true),
    case
        when current_setting('server_version_num')::int >= 170000
            then set_config('transaction_timeout', %(time_left)s, true)
    end,
    set_config('role', coalesce(nullif(%(role)s, ''), current_setting('role')), true)
