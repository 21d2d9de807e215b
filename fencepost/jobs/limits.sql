-- limits: of a job's transaction, in time: what is left of the run. They end what a vanished machine or a stray copy left on the
-- server. And, in the first column, whether the server only reads: a session that was had before learns of it here.
select
    current_setting('transaction_read_only')::bool as only_reads,
    set_config('statement_timeout', %(time_left)s, true),
    set_config('idle_in_transaction_session_timeout', %(time_left)s, true),
    case
        when current_setting('server_version_num')::int >= 170000
            then set_config('transaction_timeout', %(time_left)s, true)
    end
