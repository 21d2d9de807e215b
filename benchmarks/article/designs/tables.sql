-- tables: the article's. 100 tenants' invoices under forced row-level security, a queue that the naive designs share, and what
-- the jobs leave: `written` in their transactions, `notes` outside of any, so that what has run is known whatever was rolled back.
create table invoices (
    tenant_id int not null,
    number int not null,
    primary key (tenant_id, number)
);

create table jobs (
    id bigint generated always as identity primary key,
    kind text not null,
    status text not null default 'queued',
    attempts int not null default 0,
    max_attempts int not null default 3,
    locked_until timestamptz,
    last_error text
);
create index jobs_queued on jobs (id) where status in ('queued', 'running');

create table job_runs (
    job_id bigint not null,
    worker int not null,
    attempt int not null,
    started timestamptz not null,
    finished timestamptz
);

create table written (job_id bigint not null, attempt int not null);

create table notes (
    id bigint generated always as identity primary key,
    job_id bigint not null,
    attempt int not null,
    what text not null,
    at timestamptz not null default clock_timestamp()
);

-- The shortest queues: a row that is deleted, and one that is marked.
create table queue (id bigint generated always as identity primary key);
create table marked (id bigint generated always as identity primary key, status text not null default 'queued');
create index marked_queued on marked (id) where status = 'queued';

-- A queue under the tenants' policy.
create table tenant_jobs (id bigint generated always as identity primary key, tenant_id int not null, status text not null default 'queued');

alter table invoices enable row level security;
alter table invoices force row level security;
create policy own on invoices using (tenant_id = nullif(current_setting('app.tenant', true), '')::int);
alter table tenant_jobs enable row level security;
alter table tenant_jobs force row level security;
create policy own on tenant_jobs using (tenant_id = nullif(current_setting('app.tenant', true), '')::int);
