-- limit_locks: a change that waits for a table makes all that come after it wait behind it, so it does not wait for long.
select set_config('lock_timeout', %(timeout)s, true)
