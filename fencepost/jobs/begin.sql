-- begin: a transaction of a job, or behind a pooler of a statement of ours. `limits` and `context` follow in the same message.
-- READ COMMITTED whatever the default is: under a stricter one the fence would fail with 40001 once a heartbeat had touched
-- the row.
-- Never READ WRITE, which a server would obey that was told only to read since another one has taken over: what the job wrote
-- there would be lost.
begin isolation level read committed
