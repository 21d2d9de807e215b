-- begin: a transaction of a job. `context` follows in the same message.
-- READ COMMITTED whatever the default is: under a stricter one the fence would fail with 40001 once a heartbeat had touched
-- the row. The time limits are what is left of the run: they end what a vanished machine or a stray copy left on the server.
begin isolation level read committed read write;
select
    set_config('statement_timeout', %(time_left)s, true),
    set_config('idle_in_transaction_session_timeout', %(time_left)s, true),
    case
        when current_setting('server_version_num')::int >= 170000
            then set_config('transaction_timeout', %(time_left)s, true)
    end
