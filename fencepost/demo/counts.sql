-- counts: what became of each tenant's job. An undisturbed one has one claim and one run.
select
    j.tenant_id::int as tenant, j.status, (j.result ->> 'invoices')::int as invoices, j.fence as claims,
    (select count(*) from fencepost.job_runs r where r.job_id = j.id) as runs
from fencepost.jobs j
where j.kind = 'invoice.count'
order by tenant
