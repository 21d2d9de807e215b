-- own_tenant: whose job it is in whose transaction this is asked; null if in none's. Asked once for all jobs of a bulk.
select nullif(current_setting('fencepost_job.tenant', true), '')
