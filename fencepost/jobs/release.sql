-- release: the end of a job's transaction inside a caller's. What it wrote stays, for as long as the caller's does.
release savepoint fencepost_job
