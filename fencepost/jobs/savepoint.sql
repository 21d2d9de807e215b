-- savepoint: where a job's transaction begins inside a caller's. `context` follows in the same message.
savepoint fencepost_job
