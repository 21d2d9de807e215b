create schema test;

-- A start mark: written outside the job's transaction, so it counts real runs. `note` is what kind of mark it is.
create table test.marks (
    id bigint generated always as identity primary key,
    job bigint not null,
    attempt int not null,
    pid int not null,
    note text not null default 'start',
    at timestamptz not null default clock_timestamp()
);

-- A business row: written inside the job's transaction.
create table test.rows (
    id bigint generated always as identity primary key,
    job bigint not null,
    attempt int not null,
    note text not null default '',
    at timestamptz not null default clock_timestamp()
);
