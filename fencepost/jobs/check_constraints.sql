-- check_constraints: what the end of a job's own transaction would do, inside a caller's: deferred constraints are checked.
-- Taken back at once, so that they are as deferred as before, and what their triggers did waits for the caller's own COMMIT.
savepoint fencepost_constraints;
set constraints all immediate;
rollback to savepoint fencepost_constraints
