-- undo: roll back a job's transaction inside a caller's, with all that was set in it.
rollback to savepoint fencepost_job;
release savepoint fencepost_job
