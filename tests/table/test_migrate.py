"""Each numbered file is applied once, whole, however many start at the same time; and nobody is held up for long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
import tenacity
from psycopg import sql

from fencepost import enqueue
from fencepost.jobs import migrate as module
from fencepost.jobs.enqueue import enqueue_settings
from fencepost.jobs.migrate import LockedOut, NewerSchema, latest, migrate, version
from support.databases import Database
from support.verbs import Verbs, lane
from support.waiting import wait_until

NEXT = "alter table fencepost.jobs add column colour text"


@pytest.fixture
def pending(monkeypatch: pytest.MonkeyPatch) -> int:
    """A newer version of this code, that brings one more file: its number."""
    number = latest() + 1
    files = {**module._files(), number: NEXT}
    monkeypatch.setattr(module, "_files", lambda: files)
    return number


def test_an_empty_database_is_brought_up_to_date(empty_database: Database) -> None:
    """And a second time is nothing to do."""
    with empty_database.conn() as conn:
        assert version(conn, "fencepost") is None
        assert migrate(conn, "fencepost") == list(range(1, latest() + 1))
        assert version(conn, "fencepost") == latest()
        assert migrate(conn, "fencepost") == []


@pytest.mark.parametrize("isolation", [r"read\ committed", "serializable"])
def test_many_migrate_an_empty_database_at_once(empty_database: Database, isolation: str) -> None:
    """C114: 25 at once, one version row, and no error in the server's log; whatever the default isolation is."""
    together = threading.Barrier(25)

    def start(_: int) -> list[int]:
        with empty_database.conn(options=f"-c default_transaction_isolation={isolation}") as conn:
            together.wait()
            return migrate(conn, "fencepost")

    with ThreadPoolExecutor(25) as threads:
        applied = list(threads.map(start, range(25)))
    assert sorted(applied) == [[]] * 24 + [list(range(1, latest() + 1))]
    assert [row.version for row in empty_database.execute("select version from fencepost.schema_version")] == [latest()]
    wrong = [line for line in empty_database.log_lines() if " ERROR: " in line or " FATAL: " in line]
    assert wrong == []


def test_an_older_schema_is_upgraded_in_place(fresh_database: Database, pending: int) -> None:
    """Only what is missing is applied, and jobs stay."""
    with fresh_database.conn() as conn:
        job = enqueue(conn, "ok")
        assert migrate(conn, "fencepost") == [pending]
        assert version(conn, "fencepost") == pending
    assert fresh_database.value("select colour is null from fencepost.jobs where id = %s", [job])


def test_many_upgrade_an_older_schema_at_once(fresh_database: Database, pending: int) -> None:
    """C114, the second release."""

    def start(_: int) -> list[int]:
        with fresh_database.conn() as conn:
            return migrate(conn, "fencepost")

    with ThreadPoolExecutor(10) as threads:
        assert sorted(threads.map(start, range(10))) == [[]] * 9 + [[pending]]


def test_a_newer_schema_is_named_with_both_versions(fresh_database: Database) -> None:
    """C120: the code says who is ahead, and touches nothing."""
    fresh_database.execute("update fencepost.schema_version set version = 99")
    with fresh_database.conn() as conn:
        with pytest.raises(NewerSchema, match=f"version 99, this code has {latest()}"):
            migrate(conn, "fencepost")
        assert version(conn, "fencepost") == 99


def test_a_file_that_fails_leaves_nothing_behind(fresh_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is one transaction: the version stays, the half that went through does not."""
    files = {**module._files(), latest() + 1: f"{NEXT}; select 1 / 0"}
    monkeypatch.setattr(module, "_files", lambda: files)
    before = fresh_database.value("select version from fencepost.schema_version")
    with fresh_database.conn() as conn:
        with pytest.raises(psycopg.errors.DivisionByZero):
            migrate(conn, "fencepost")
        assert version(conn, "fencepost") == before
    assert not fresh_database.value("select exists (select from pg_attribute where attname = 'colour')")


def test_a_change_behind_a_long_transaction_does_not_hold_up_the_queue(
    fresh_database: Database, pending: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C116: it waits for the table in short turns, and goes through once the reader is gone."""
    monkeypatch.setattr(module, "LOCK_TIMEOUT", "100ms")
    applied: list[int] = []
    slowest = 0.0

    def upgrade() -> None:
        with fresh_database.conn() as conn:
            applied.extend(migrate(conn, "fencepost"))

    with ThreadPoolExecutor(1) as threads, fresh_database.worker_conn() as conn:
        with fresh_database.conn(autocommit=False) as reader:
            reader.execute("select count(*) from fencepost.jobs")
            upgrading = threads.submit(upgrade)
            waits = "select exists (select from pg_locks where not granted and relation = 'fencepost.jobs'::regclass)"
            wait_until(lambda: fresh_database.value(waits), what="the change that waits for the table")
            for _ in range(20):
                began = time.monotonic()
                enqueue(conn, "ok")
                Verbs(conn).must_claim()
                slowest = max(slowest, time.monotonic() - began)
            assert not upgrading.done()
        upgrading.result(20)
    assert applied == [pending]
    assert slowest < 1.0


def test_a_table_that_stays_locked_is_told_with_the_cure(
    fresh_database: Database, pending: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C116: not for ever, and not with the driver's words."""
    stop_after = tenacity.stop_after_delay
    monkeypatch.setattr(module, "LOCK_TIMEOUT", "10ms")
    monkeypatch.setattr(tenacity, "stop_after_delay", lambda _: stop_after(0.05))
    monkeypatch.setattr(tenacity, "wait_random", lambda *_: tenacity.wait_none())
    with fresh_database.conn(autocommit=False) as reader, fresh_database.conn() as conn:
        reader.execute("select count(*) from fencepost.jobs")
        with pytest.raises(LockedOut, match="end it, or run `fencepost migrate` again"):
            migrate(conn, "fencepost")
        assert version(conn, "fencepost") == pending - 1


def test_two_schemas_do_not_wait_for_each_other(empty_database: Database) -> None:
    """Two installations in one database."""
    with empty_database.conn(autocommit=False) as other:
        other.execute("select pg_advisory_xact_lock(hashtextextended('one', 4182005))")
        with empty_database.conn(options="-c statement_timeout=20s") as conn:
            assert migrate(conn, "two") == list(range(1, latest() + 1))


ODD_SCHEMAS = ["Jobs-1", 'we"ird', "it's", "fencepost.x", "select"]


@pytest.fixture
def in_odd_schema(empty_database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Database]]:
    """A database with the tables in an odd schema that a DBA has made, for logins with no search_path."""

    def install(schema: str) -> Database:
        name = sql.Identifier(schema)
        with empty_database.conn() as conn:
            conn.execute(sql.SQL("create schema {}").format(name))
            conn.execute(sql.SQL("alter role {} set search_path = ''").format(sql.Identifier(empty_database.worker)))
            conn.execute("set search_path = ''")
            migrate(conn, schema)
        empty_database.grant(schema)
        monkeypatch.setenv("FENCEPOST_SCHEMA", schema)
        enqueue_settings.cache_clear()
        return empty_database

    yield install
    enqueue_settings.cache_clear()


@pytest.mark.parametrize("schema", ODD_SCHEMAS)
def test_every_verb_works_in_an_odd_schema_without_a_search_path(in_odd_schema: Callable[[str], Database], schema: str) -> None:
    """C118: and nothing of ours is anywhere else."""
    database = in_odd_schema(schema)
    with database.worker_conn() as conn:
        assert conn.execute("show search_path").fetchone() == ('""',)
        verbs = Verbs(conn, schema)
        job = enqueue(conn, "ok", {"n": 1}, tenant=1, unique_key="k")
        assert enqueue(conn, "ok", tenant=1, unique_key="k") == job
        for ended in ("failed", "lost", "interrupted", "done"):
            assert verbs.lanes() == [("default", 0)]
            assert verbs.waiting().due == 1
            claimed = verbs.must_claim(lanes=[lane()])
            assert verbs.heartbeat(claimed) == {claimed.name: "renewed"}
            assert verbs.expired() == []
            with conn.transaction():
                conn.execute("select set_config('fencepost_job.run', %s, true)", [claimed.name])
                verbs.hold(claimed)
            assert verbs.finish(claimed, ended)
        assert version(conn, schema) == latest()
    elsewhere = """
        select relname from pg_class c join pg_namespace n on n.oid = relnamespace
        where nspname <> %s and nspname !~ '^pg_|^information_schema$'
        union select proname from pg_proc p join pg_namespace n on n.oid = pronamespace
        where nspname <> %s and nspname !~ '^pg_|^information_schema$'
    """
    assert database.execute(elsewhere, [schema, schema]) == []


@pytest.mark.parametrize("schema", ["Jobs-1", 'we"ird'])
def test_two_installations_in_one_database_do_not_wake_each_other(
    in_odd_schema: Callable[[str], Database], schema: str
) -> None:
    """C111: the channel is the schema."""
    database = in_odd_schema(schema)
    database.migrate("fencepost")
    for one in (schema, "fencepost"):
        database.add_supervisor(one)
    heard: list[str] = []
    with database.conn() as conn:
        conn.add_notify_handler(lambda notify: heard.append(notify.channel))
        for channel in (schema, "fencepost"):
            conn.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
        enqueue(conn, "ok")
        conn.execute("select 1")
        assert heard == [schema]


def test_a_worker_lacks_nothing_but_what_is_documented(fresh_database: Database) -> None:
    """C117: each right that is taken away is named by the server; none of them is there for nothing."""
    rights = {
        "usage on schema fencepost": "schema fencepost",
        "select on fencepost.jobs": "table jobs",
        "update on fencepost.jobs": "table jobs",
        "select on fencepost.job_runs": "table job_runs",
        "execute on function fencepost.finish": "function finish",
        "execute on function fencepost.enqueue": "function enqueue",
        "select on fencepost.schema_version": "table schema_version",
    }
    worker = fresh_database.worker
    fresh_database.execute("revoke all on schema public from public")

    def work() -> None:
        with fresh_database.worker_conn() as conn:
            verbs = Verbs(conn)
            version(conn, "fencepost")
            enqueue(conn, "ok")
            verbs.lanes()
            claimed = verbs.must_claim()
            verbs.heartbeat(claimed)
            conn.execute("select count(*) from fencepost.job_runs")
            assert verbs.finish(claimed)

    work()
    for right, named in rights.items():
        fresh_database.execute(f"revoke {right} from {worker}")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match=named):
            work()
        fresh_database.execute(f"grant {right} to {worker}")
        fresh_database.execute("delete from fencepost.jobs")
    work()
