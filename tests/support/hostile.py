"""Jobs that leave what they can in their session and end as they like; each first looks whether another has left something.

What one finds that is not its own it writes into a file, since its transaction may be rolled back and its process may die.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg

from fencepost import Job, JobError, handler

INVOICES = 1000
"""Tenant n has floor(INVOICES / n)."""

TABLES = """
    create table test.invoices (tenant_id int not null, number int not null);
    insert into test.invoices
        select tenant, number from generate_series(1, 100) tenant, generate_series(1, 1000 / tenant) number;
    create table test.effects (
        tenant_id int not null default nullif(current_setting('app.tenant', true), '')::int,
        job bigint not null,
        way text not null
    );
    do $$ declare name text; begin
        foreach name in array array['invoices', 'effects'] loop
            execute format('alter table test.%1$s enable row level security, force row level security', name);
            execute format(
                'create policy by_tenant on test.%1$s
                    using (tenant_id = nullif(current_setting(''app.tenant'', true), '''')::int)',
                name
            );
        end loop;
    end $$;
    grant select, insert on test.invoices, test.effects to public;
"""

LOOK = """
    select json_build_object(
        'user', current_user, 'role', current_setting('role'), 'search_path', current_setting('search_path'),
        'lock_timeout', current_setting('lock_timeout'), 'timezone', current_setting('timezone'),
        'read_only', current_setting('default_transaction_read_only'),
        'custom', coalesce(current_setting('hostile.custom', true), ''),
        'temporary', (select count(*) from pg_class c where c.relnamespace = pg_my_temp_schema()),
        'locks', (select count(*) from pg_locks l where l.locktype = 'advisory' and l.pid = pg_backend_pid()),
        'listening', (select count(*) from pg_listening_channels()),
        'cursors', (select count(*) from pg_cursors c where c.is_holdable),
        'prepared', (select count(*) from pg_prepared_statements)
    )
"""

kept: list[Any] = []


def sets(*settings: tuple[str, str]) -> Callable[[Any, Job], None]:
    """Return a way that sets something for the session."""

    def way(conn: Any, _job: Job) -> None:
        for name, value in settings:
            conn.execute("select set_config(%s, %s, false)", [name, value])

    return way


def does(*statements: str) -> Callable[[Any, Job], None]:
    """Return a way that sends statements."""

    def way(conn: Any, _job: Job) -> None:
        for statement in statements:
            conn.execute(statement)

    return way


def prepares(conn: Any, job: Job) -> None:
    """Have psycopg prepare what it sends."""
    for number in range(3):
        conn.execute("select %s::int + 1", [number], prepare=True)
        conn.execute("select count(*) from test.invoices where number > %s", [job.id % 7], prepare=True)


def hands_to_a_thread(conn: Any, _job: Job) -> None:
    """A thread uses the connection beside the job, and after it as long as it can."""
    told = threading.Event()

    def use() -> None:
        with suppress(psycopg.Error, JobError):
            conn.execute("select set_config('app.tenant', '77', false)")
            told.set()
            while True:
                conn.execute("select count(*) from test.invoices")

    threading.Thread(target=use, daemon=True).start()
    told.wait(1)


def hands_to_a_copy(conn: Any, _job: Job) -> None:
    """A copy of the process tries to use the connection."""
    if (pid := os.fork()) == 0:
        with suppress(JobError, psycopg.Error):
            conn.execute("select set_config('app.tenant', '78', false)")
        os._exit(0)
    os.waitpid(pid, 0)


def leaves_another_open(_conn: Any, job: Job) -> None:
    """Its transaction is open already: another is refused, and this is no way to have one."""
    with suppress(JobError):
        kept.append(job.transaction().__enter__())


def keeps_it(conn: Any, _job: Job) -> None:
    """For a later job to use; and use what an earlier one has kept."""
    for old in kept[-5:]:
        with suppress(JobError, psycopg.Error, AttributeError):
            old.execute("select set_config('app.tenant', '79', false)")
    kept.append(conn)


def leaves_a_copy_open(conn: Any, _job: Job) -> None:
    """Ask for many rows and read one."""
    copy = conn.cursor().copy("copy (select * from test.invoices i, test.invoices j) to stdout")
    kept.append(copy)
    copy.__enter__().read()


def leaves_a_stream_open(conn: Any, _job: Job) -> None:
    """Ask for many rows and read one, another way."""
    rows = conn.cursor().stream("select * from test.invoices i, generate_series(1, 1000)")
    kept.append(rows)
    next(rows)


def leaves_a_pipeline_open(conn: Any, job: Job) -> None:
    """What is sent behind it is not answered."""
    pipeline = conn.pipeline()
    kept.append(pipeline)
    pipeline.__enter__()
    conn.execute("select set_config('app.tenant', '96', false)")


WAYS: dict[str, Callable[[Any, Job], None]] = {
    "nothing": does(),
    "the tenant": sets(("app.tenant", "99")),
    "no tenant": sets(("app.tenant", "")),
    "the tenant in SQL": does("set app.tenant = '98'"),
    "the token": sets(("fencepost_job.tenant", "97")),
    "settings": sets(("search_path", "pg_temp"), ("lock_timeout", "7"), ("timezone", "Asia/Tokyo"), ("hostile.custom", "mine")),
    "read only": does("set session characteristics as transaction read only"),
    "a role": does("set role {role}"),
    "a table of the same name": does(
        "create temporary table invoices as select 1 as tenant_id, 1 as number", "set search_path = pg_temp, test"
    ),
    "a temporary view": does("create temporary view effects as select 1 as one"),
    "a cursor": does("declare left_open cursor with hold for select * from test.invoices"),
    "a prepared statement": does("prepare left_over as select count(*) from test.invoices"),
    "statements that psycopg prepares": prepares,
    "a lock": does("select pg_advisory_lock({job})"),
    "a shared lock": does("select pg_advisory_lock_shared(42)"),
    "a channel": does("listen tenants"),
    "its end": does("commit"),
    "its end, undone": does("rollback"),
    "its end, and another": does("commit", "begin"),
    "a failed statement": does("savepoint one", "select 1", "rollback to savepoint one", "set lock_timeout = 9"),
    "a thread": hands_to_a_thread,
    "a copy": hands_to_a_copy,
    "another transaction": leaves_another_open,
    "the connection": keeps_it,
    "an open COPY": leaves_a_copy_open,
    "an open stream": leaves_a_stream_open,
    "an open pipeline": leaves_a_pipeline_open,
    "a view of a catalog's name": does("create temporary view pg_settings as select 1 as one"),
}

LEFT = {
    "nothing": "",
    "the tenant": "the tenant",
    "settings": "settings (TimeZone, lock_timeout, search_path)",
    "read only": "settings (default_transaction_read_only)",
    "a role": "a role",
    "a table of the same name": "settings (search_path), temporary tables",
    "a cursor": "cursors",
    "a prepared statement": "prepared statements",
    "statements that psycopg prepares": "",
    "a lock": "advisory locks",
    "a view of a catalog's name": "temporary tables",
    "a channel": "LISTEN",
}
"""What some of them leave, in the words of the log."""

ENDS: dict[str, Callable[[], object]] = {
    "returns": lambda: None,
    "raises": lambda: 1 / 0,
    "exits": lambda: os._exit(3),
    "is killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
}


@handler("looks_at_its_session")
def looks_at_its_session(job: Job) -> dict[str, Any]:
    """Return what a session is like for a job."""
    with job.transaction() as conn:
        return dict(conn.execute(LOOK).fetchall()[0][0])


@handler("hostile")
def hostile(job: Job, *, way: str, ends: str, twice: bool, clean: dict[str, Any], file: str, role: str) -> None:
    """Look, count, write, leave something, and end."""
    assert job.tenant is not None
    for turn in (1, 2) if twice else (1,):
        with job.transaction() as conn:
            # Between its own transactions a job may leave itself what it likes, but never a tenant.
            _expect(conn, job, clean if turn == 1 else None, file)
            conn.execute("insert into test.effects (job, way) values (%s, %s)", [job.id, way])
            WAYS[way](_Filled(conn, job, role), job)
            if not twice:
                ENDS[ends]()
    ENDS[ends]()


def _leaves(name: str) -> Callable[..., None]:
    """Return a handler that leaves one thing."""

    def leave(job: Job, *, role: str) -> None:
        with job.transaction() as conn:
            WAYS[name](_Filled(conn, job, role), job)

    return leave


for each in LEFT:
    handler(f"leaves {each}")(_leaves(each))


def _leaves_open(name: str) -> Callable[..., None]:
    """Return a handler that writes a row, and leaves one thing open in its one transaction."""

    def leave(job: Job, *, role: str) -> None:
        job.conn.execute("insert into test.effects (job, way) values (%s, %s)", [job.id, name])
        WAYS[name](_Filled(job.conn, job, role), job)

    return leave


for each in ("an open COPY", "an open stream", "an open pipeline"):
    handler(f"leaves {each}")(_leaves(each))
    handler(f"leaves {each} at once", transaction=True)(_leaves_open(each))


@handler("races_its_end")
def races_its_end(job: Job, *, turns: int) -> None:
    """Let a thread write as each transaction ends."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(turns):
            with job.transaction() as conn:
                thread = threading.Thread(target=_writes, args=(conn,))
                thread.start()
            thread.join()
    finally:
        sys.setswitchinterval(before)


def _writes(conn: Any) -> None:
    with suppress(JobError, psycopg.Error):
        while True:
            conn.execute("insert into test.outside values (current_setting('fencepost_job.run', true))")


class _Filled:
    """A connection that fills in what a statement of a way leaves open."""

    def __init__(self, conn: Any, job: Job, role: str) -> None:
        self._conn = conn
        self._names = {"role": role, "job": str(job.id)}

    def execute(self, query: str, *arguments: Any, **options: Any) -> Any:
        for name, value in self._names.items():
            query = query.replace(f"{{{name}}}", value)
        return self._conn.execute(query, *arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conn, name)


def _expect(conn: Any, job: Job, clean: dict[str, Any] | None, file: str) -> None:
    found = {}
    if clean is not None:
        session = conn.execute(LOOK).fetchall()[0][0]
        found = {name: value for name, value in session.items() if value != clean[name]}
    told = "select current_setting('app.tenant', true), current_setting('fencepost_job.tenant', true)"
    tenants = conn.execute(told).fetchall()[0]
    if tenants != (job.tenant, job.tenant):
        found["tenant"] = tenants
    if clean is not None:
        count = conn.execute("select count(*) from test.invoices").fetchall()[0][0]
        if count != INVOICES // int(job.tenant or 0):
            found["invoices"] = count
    if found:
        with open(file, "a", encoding="utf-8") as findings:
            findings.write(json.dumps({"job": job.id, "tenant": job.tenant, "found": found}) + "\n")
