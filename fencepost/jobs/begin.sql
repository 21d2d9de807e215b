-- begin: a transaction of a job. `context` follows in the same message.
-- READ COMMITTED whatever the default is: under a stricter one the fence would fail with 40001 once a heartbeat had touched
-- the row. The time limits are what is left of the run: they end what a vanished machine or a stray copy left on the server.
-- Never READ WRITE, which a server would obey that was told only to read since another one has taken over: what the job wrote
-- there would be lost. A session that was had before learns of it here.
begin isolation level read committed;
select
    current_setting('transaction_read_only')::bool as only_reads,
    set_config('statement_timeout', %(time_left)s, true),
    set_config('idle_in_transaction_session_timeout', %(time_left)s, true),
    case
        when current_setting('server_version_num')::int >= 170000
            then set_config('transaction_timeout', %(time_left)s, true)
    end
