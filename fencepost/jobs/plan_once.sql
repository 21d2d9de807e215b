-- plan_once: for a worker's connection for claims. Its statements are planned once and for all values: each plan would cost more
-- than what it is for. So the plan must not depend on what the table was like in that moment, or was thought to be like before it
-- was ever analyzed: walks of the whole table, and sorts, are for no statement of ours. What compiles a plan takes as long as a
-- hundred claims.
select
    set_config('plan_cache_mode', 'force_generic_plan', false),
    set_config('enable_seqscan', 'off', false),
    set_config('enable_bitmapscan', 'off', false),
    set_config('enable_sort', 'off', false),
    set_config('jit', 'off', false)
