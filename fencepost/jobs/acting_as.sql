-- acting_as: as whom a job's transactions work.
select r.rolname::text from pg_roles r where r.rolname = coalesce(nullif(%(job_role)s, ''), current_user)
