-- grants: all that a worker's login needs of Fencepost, as documented.
grant usage on schema fencepost to worker;
grant select, update on fencepost.jobs to worker;
grant select on fencepost.job_runs, fencepost.schema_version to worker;
grant select, insert, update, delete on fencepost.supervisors to worker;
grant execute on function fencepost.enqueue, fencepost.enqueue_many, fencepost.hold, fencepost.finish to worker;
grant execute on function fencepost.prune to worker
