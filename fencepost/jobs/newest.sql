-- newest: the highest id there is.
select coalesce(max(j.id), 0) as id from fencepost.jobs j
