-- sample: 100 tenants and their invoices, of which tenant n has floor(20000 / n): 103,707 in all.
-- Row-level security is forced, so that it binds the tables' owner too, and it comes last: from then on even the owner
-- could only write for one tenant at a time.
create schema billing;

create table billing.invoices (
    tenant_id int not null,
    number int not null,
    amount numeric(10, 2) not null,
    primary key (tenant_id, number)
);

-- Where the late writer writes. Nothing here would stop a second row: only the fence does.
create table billing.reports (
    tenant_id int not null default nullif(current_setting('app.tenant', true), '')::int,
    job_id bigint not null,
    attempt int not null,
    written_at timestamptz not null default clock_timestamp()
);

insert into billing.invoices (tenant_id, number, amount)
select tenant.id, number, (tenant.id * 7 + number * 13) % 90000 / 100.0 + 10
from generate_series(1, 100) as tenant (id)
cross join lateral generate_series(1, 20000 / tenant.id) as number;

alter table billing.invoices enable row level security;
alter table billing.invoices force row level security;
create policy own on billing.invoices
    using (tenant_id = nullif(current_setting('app.tenant', true), '')::int);

alter table billing.reports enable row level security;
alter table billing.reports force row level security;
create policy own on billing.reports
    using (tenant_id = nullif(current_setting('app.tenant', true), '')::int);

grant usage on schema billing to worker;
grant select on billing.invoices to worker;
grant insert on billing.reports to worker;

analyze billing.invoices
