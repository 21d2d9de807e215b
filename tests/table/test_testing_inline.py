"""`fencepost.testing`: jobs run in the caller's transaction, which is as it was afterwards but for what they wrote."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection, Connection, IsolationLevel
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from fencepost import (
    Cancel,
    GiveUp,
    InvalidJob,
    Job,
    JobError,
    Retry,
    Snooze,
    TransactionEnded,
    UnknownHandler,
    aenqueue,
    enqueue,
    handler,
)
from fencepost.testing import adrain, arun, drain, run
from support.databases import Database
from support.jobs import Jobs

LATER = timedelta(days=1)

SET = """
    select current_setting('app.tenant', true), current_user::text, current_setting('statement_timeout'),
        current_setting('search_path'), current_setting('fencepost_job.run', true)
"""


@pytest.fixture(autouse=True)
def no_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty registry, put back afterwards."""
    monkeypatch.setattr("fencepost.handlers._handlers", {})


@pytest.fixture
def conn(connect: Callable[..., Connection]) -> Connection:
    """A connection as a test suite has it: in a transaction, that is rolled back in the end."""
    return connect(autocommit=False)


def write(conn: Connection, job: Job, note: str = "") -> None:
    conn.execute("insert into test.rows (job, attempt, note) values (%s, %s, %s)", (job.id, job.attempt, note))


def notes(conn: Connection) -> list[str]:
    return [note for (note,) in conn.execute("select note from test.rows order by id")]


def is_open(conn: Connection) -> bool:
    return conn.info.transaction_status == TransactionStatus.INTRANS


# ---- run


def test_a_handler_runs_in_the_callers_transaction_with_its_tenant_and_a_payload_that_went_through_json(
    conn: Connection, database: Database
) -> None:
    seen = {}

    @handler("billing.count")
    def count(job: Job, *, month: str, lines: list[int]) -> dict[str, Any]:
        seen.update(job=job, lines=lines)
        with job.transaction() as own:
            write(own, job, month)
            return {"tenant": own.execute("select current_setting('app.tenant')").fetchone()[0]}

    lines = [1, 2]
    ran = run(conn, count, {"month": "2026-10", "lines": lines}, tenant=7, attempt=2, max_attempts=4, queue="mail")
    assert (ran.outcome, ran.result, ran.error) == ("done", {"tenant": "7"}, None)
    job = seen["job"]
    assert (job.tenant, job.attempt, job.max_attempts, job.queue, job.kind) == ("7", 2, 4, "mail", "billing.count")
    assert seen["lines"] == lines
    assert seen["lines"] is not lines
    assert is_open(conn)
    assert notes(conn) == ["2026-10"]
    conn.rollback()
    assert database.value("select count(*) from test.rows") == 0


def test_a_kind_will_do_for_a_handler_and_one_that_is_unknown_is_named(conn: Connection) -> None:
    handler("known", tenantless=True)(lambda job: job.kind)
    assert run(conn, "known").result == "known"
    with pytest.raises(UnknownHandler, match="'unknown'"):
        run(conn, "unknown")


@pytest.mark.parametrize("payload", [{"pair": (1, 2)}, {"when": datetime.now(UTC)}, [1]])
def test_what_could_not_be_enqueued_is_refused(conn: Connection, payload: Any) -> None:
    handler("known")(lambda job, **payload: None)
    with pytest.raises(InvalidJob, match="payload"):
        run(conn, "known", payload, tenant=1)
    with pytest.raises(InvalidJob, match="tenant"):
        run(conn, "known", tenant=" ")


@pytest.mark.parametrize(
    ("error", "outcome", "final", "wait"),
    [
        (Retry(after=60), "failed", False, 60),
        (Snooze(30), "snoozed", False, 30),
        (GiveUp("hopeless"), "failed", True, 0),
        (Cancel("not needed"), "cancelled", False, 0),
        (SystemExit(3), "failed", False, None),
        (asyncio.CancelledError(), "failed", False, None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_handler_raises_is_its_outcome_and_is_kept(
    conn: Connection, error: BaseException, outcome: str, *, final: bool, wait: float | None
) -> None:
    @handler("raises")
    def raises(job: Job) -> None:
        with job.transaction() as own:
            write(own, job, "committed")
        with job.transaction() as own:
            write(own, job, "rolled back")
            raise error

    ran = run(conn, raises, tenant=1)
    assert (ran.outcome, ran.final, ran.error) == (outcome, final, error)
    assert wait is None or ran.wait == timedelta(seconds=wait)
    assert notes(conn) == ["committed"]
    assert is_open(conn)


def test_a_result_that_can_not_be_kept_and_a_missing_tenant_are_failures(conn: Connection) -> None:
    @handler("returns", transaction=True)
    def returns(job: Job) -> set[int]:
        write(job.conn, job)
        return {1}

    ran = run(conn, returns, tenant=1)
    assert ran.outcome == "failed"
    assert "the result is a set" in ran.summary
    assert notes(conn) == []
    ran = run(conn, returns)
    assert (ran.outcome, ran.final) == ("failed", True)
    assert "needs a tenant" in str(ran.error)


def test_run_needs_none_of_our_tables(empty_database: Database) -> None:
    @handler("asks", transaction=True)
    def asks(job: Job) -> int:
        return job.conn.execute("select 1").fetchone()[0]

    @handler("asks.more")
    def asks_more(job: Job) -> int:
        with job.transaction() as own:
            return own.execute("select 2").fetchone()[0]

    with empty_database.worker_conn(autocommit=False) as conn:
        assert [run(conn, one, tenant=1).result for one in (asks, asks_more)] == [1, 2]


def test_runs_of_one_job_share_an_idempotency_key_and_others_do_not(conn: Connection) -> None:
    keys = []
    handler("key", tenantless=True)(lambda job: keys.append(job.idempotency_key))
    for job_id in (5, 5, 6, None, None):
        assert run(conn, "key", job_id=job_id).outcome == "done"
    assert [len(set(keys)), keys[0] == keys[1]] == [4, True]


# ---- drain


def test_what_the_test_has_just_enqueued_runs_and_is_finished_in_its_transaction(conn: Connection, database: Database) -> None:
    @handler("pays", transaction=True)
    def pays(job: Job, *, note: str) -> str:
        write(job.conn, job, note)
        enqueue(job.conn, tells, {"note": f"{note} is paid"}, tenant=job.tenant)
        return note

    @handler("tells")
    def tells(job: Job, *, note: str) -> None:
        with job.transaction() as own:
            write(own, job, note)

    job = enqueue(conn, pays, {"note": "a"}, tenant=1)
    enqueue(conn, pays, {"note": "b"}, tenant=1)
    ran = drain(conn)
    assert [(one.kind, one.outcome, one.status, one.result) for one in ran] == [
        ("pays", "done", "done", "a"),
        ("pays", "done", "done", "b"),
        ("tells", "done", "done", None),
        ("tells", "done", "done", None),
    ]
    assert ran[0].job_id == job
    assert notes(conn) == ["a", "b", "a is paid", "b is paid"]
    assert conn.execute("select outcome, attempt, tenant_id from fencepost.job_runs where job_id = %s", [job]).fetchone() == (
        "done",
        1,
        "1",
    )
    assert drain(conn) == []
    conn.rollback()
    assert database.value("select count(*) from fencepost.jobs") == 0


def test_the_order_is_that_of_claims(conn: Connection) -> None:
    handler("one")(lambda job, *, n: n)
    for n, options in enumerate([{"queue": "low"}, {}, {"priority": -1}, {}, {"queue": "low", "priority": -5}]):
        enqueue(conn, "one", {"n": n}, tenant=1, **options)
    assert [ran.result for ran in drain(conn, queues=["default"])] == [2, 1, 3]
    for n, options in enumerate([{"queue": "low"}, {}, {"priority": -1}]):
        enqueue(conn, "one", {"n": n}, tenant=1, **options)
    assert [ran.result for ran in drain(conn, queues=["default", "*"], limit=4)] == [2, 1, 4, 0]
    assert len(drain(conn)) == 1
    with pytest.raises(TypeError, match="list of names"):
        drain(conn, queues="default")


def test_a_scheduled_job_runs_when_its_time_is_said_to_have_come(conn: Connection) -> None:
    handler("one")(lambda job: None)
    enqueue(conn, "one", tenant=1, after=3600)
    enqueue(conn, "one", tenant=1, run_at=datetime.now(UTC) + timedelta(hours=3))
    assert drain(conn) == []
    assert len(drain(conn, now=datetime.now(UTC) + timedelta(hours=2))) == 1
    assert len(drain(conn, now=datetime.now(UTC) + LATER)) == 1
    with pytest.raises(ValueError, match="time zone"):
        drain(conn, now=datetime.now())  # noqa: DTZ005


def test_what_is_to_be_tried_again_waits_for_a_later_drain(conn: Connection) -> None:
    @handler("fails", max_attempts=3)
    def fails(job: Job) -> None:
        raise Retry(after=0)

    enqueue(conn, fails, tenant=1)
    assert [(one.outcome, one.attempt, one.status) for one in drain(conn)] == [("failed", 1, "queued")]
    # The clock goes on, though now() does not in this transaction; what it is said to be counts as well.
    assert [(one.outcome, one.attempt, one.status) for one in drain(conn)] == [("failed", 2, "queued")]
    assert drain(conn, now=datetime.now(UTC) - LATER) == []
    assert [(one.attempt, one.status) for one in drain(conn, now=datetime.now(UTC) + LATER)] == [(3, "dead")]


def test_waits_count_from_when_the_drain_is_said_to_be(conn: Connection) -> None:
    @handler("polls")
    def polls(job: Job) -> None:
        raise Snooze(60)

    enqueue(conn, polls, tenant=1)
    noon = datetime.now(UTC) + LATER
    assert [(one.outcome, one.status) for one in drain(conn, now=noon)] == [("snoozed", "queued")]
    assert drain(conn, now=noon + timedelta(seconds=59)) == []
    assert len(drain(conn, now=noon + timedelta(seconds=62))) == 1


def test_a_drain_ends_although_a_job_snoozes_for_no_time_or_enqueues_itself(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.testing.draining.MOST", 20)

    @handler("snoozes")
    def snoozes(job: Job) -> None:
        raise Snooze(0)

    @handler("breeds", transaction=True)
    def breeds(job: Job) -> None:
        enqueue(job.conn, breeds, tenant=1)

    enqueue(conn, snoozes, tenant=1)
    assert [one.outcome for one in drain(conn)] == ["snoozed"]
    enqueue(conn, breeds, tenant=1)
    assert len(drain(conn, limit=30)) == 30
    with pytest.raises(JobError, match="20 jobs have run, and 'breeds' is due"):
        drain(conn)


def test_a_job_that_another_session_has_committed_since_is_due(conn: Connection, jobs: Jobs) -> None:
    handler("one")(lambda job: None)
    conn.execute("select 1")
    job = jobs.enqueue("one")
    assert [one.job_id for one in drain(conn)] == [job]
    conn.rollback()
    assert (jobs[job].status, jobs[job].attempts) == ("queued", 0)


def test_a_drain_works_at_any_isolation_level(conn: Connection) -> None:
    handler("one", transaction=True)(lambda job: write(job.conn, job, "one"))
    conn.isolation_level = IsolationLevel.SERIALIZABLE
    enqueue(conn, "one", tenant=1)
    assert [one.outcome for one in drain(conn)] == ["done"]
    assert conn.execute("select current_setting('transaction_isolation')").fetchone() == ("serializable",)
    assert notes(conn) == ["one"]


def test_a_kind_without_a_handler_stays_queued(conn: Connection) -> None:
    handler("one")(lambda job: None)
    enqueue(conn, "of.another.program", tenant=1)
    enqueue(conn, "one", tenant=1)
    assert [one.kind for one in drain(conn)] == ["one"]
    assert conn.execute("select status from fencepost.jobs order by id").fetchall() == [("queued",), ("done",)]


def test_a_job_that_was_enqueued_without_a_tenant_is_dead(conn: Connection) -> None:
    handler("one")(lambda job: None)
    conn.execute("select fencepost.enqueue('one')")
    (ran,) = drain(conn)
    assert (ran.outcome, ran.final, ran.status) == ("failed", True, "dead")


# ---- nothing is left but what was written


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_nothing_that_a_handler_sets_reaches_the_caller_or_the_next_job(conn: Connection, ends: str) -> None:
    seen = []

    @handler("sets")
    def sets(job: Job, *, local: bool) -> None:
        with job.transaction() as own:
            seen.append(own.execute(SET).fetchone())
            for name, value in [("app.tenant", "99"), ("statement_timeout", "1234"), ("search_path", "pg_temp")]:
                own.execute("select set_config(%s, %s, %s)", (name, value, local))
        with job.transaction() as own:
            seen.append(own.execute(SET).fetchone())

    at_first = conn.execute(SET).fetchone()
    enqueue(conn, sets, {"local": True}, tenant=1)
    enqueue(conn, sets, {"local": False}, tenant=2)
    enqueue(conn, sets, {"local": True}, tenant=3)
    assert [one.outcome for one in drain(conn)] == ["done"] * 3
    left = conn.execute(SET).fetchone()
    # A setting that was once set reads as '' and not as null.
    assert [value or "" for value in left] == [value or "" for value in at_first]
    assert [one[0] for one in seen] == ["1", "1", "2", "2", "3", "3"]
    assert {one[1:4] for one in seen} == {at_first[1:4]}
    getattr(conn, ends)()
    assert [value or "" for value in conn.execute(SET).fetchone()] == [value or "" for value in at_first]


def test_what_the_caller_has_set_is_set_again(conn: Connection) -> None:
    @handler("sets")
    def sets(job: Job) -> None:
        with job.transaction() as own:
            own.execute("set local statement_timeout = 1234; set search_path = pg_temp; set local app.tenant = 'other'")

    conn.execute("set local statement_timeout = '7s'; set local search_path = test, public; set local app.tenant = 'mine'")
    before = conn.execute(SET).fetchone()
    assert run(conn, sets, tenant=1).outcome == "done"
    assert conn.execute(SET).fetchone()[:4] == before[:4]


def test_a_job_works_as_its_role_and_the_caller_does_not(
    conn: Connection, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = f"job_{database.name}"
    database.execute(
        f"""
        create role {role};
        grant {role} to {database.worker};
        grant usage on schema fencepost, test to {role};
        grant execute on function fencepost.hold, fencepost.finish to {role};
        """
    )
    monkeypatch.setenv("FENCEPOST_JOB_ROLE", role)

    @handler("role")
    def tells(job: Job) -> str:
        with job.transaction() as own:
            return own.execute("select current_user::text").fetchone()[0]

    @handler("role.once", transaction=True)
    def tells_once(job: Job) -> str:
        return job.conn.execute("select current_user::text").fetchone()[0]

    enqueue(conn, tells, tenant=1)
    enqueue(conn, tells_once, tenant=1)
    assert [one.result for one in drain(conn)] == [role, role]
    assert run(conn, tells, tenant=1).result == role
    assert conn.execute("select current_user::text").fetchone() == (database.worker,)
    conn.rollback()
    database.execute(f"drop owned by {role}; drop role {role}")


def test_a_role_that_is_not_there_fails_the_run_and_nothing_else(conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FENCEPOST_JOB_ROLE", "nobody_has_this_name")

    @handler("asks", transaction=True)
    def asks(job: Job) -> None:
        raise AssertionError

    conn.execute("insert into test.rows (job, attempt, note) values (0, 0, 'mine')")
    ran = run(conn, asks, tenant=1)
    assert "nobody_has_this_name" in ran.summary
    assert notes(conn) == ["mine"]


def test_a_deferred_constraint_fails_the_run_and_stays_deferred_for_the_caller(
    connect: Callable[..., Connection], database: Database
) -> None:
    @handler("doubles")
    def doubles(job: Job, *, n: int) -> None:
        with job.transaction() as own:
            own.execute("insert into numbers values (%s), (1)", [n])

    with connect(autocommit=False) as conn:
        conn.execute("create temporary table numbers (n int unique deferrable initially deferred) on commit drop")
        ran = run(conn, doubles, {"n": 1}, tenant=1)
        assert isinstance(ran.error, psycopg.errors.UniqueViolation)
        assert conn.execute("select count(*) from numbers").fetchone() == (0,)
        assert run(conn, doubles, {"n": 2}, tenant=1).outcome == "done"
        conn.execute("insert into numbers values (1)")
        conn.execute("delete from numbers")


@pytest.mark.parametrize("in_table", [True, False])
def test_a_transaction_that_a_job_leaves_open_is_rolled_back_and_the_callers_is_not(
    conn: Connection, *, in_table: bool
) -> None:
    @handler("leaves")
    def leaves(job: Job) -> None:
        write(job.transaction().__enter__(), job, "left")

    conn.execute("insert into test.rows (job, attempt, note) values (0, 0, 'mine')")
    if in_table:
        enqueue(conn, leaves, tenant=1)
        (ran,) = drain(conn)
    else:
        ran = run(conn, leaves, tenant=1)
    assert "left a transaction open" in str(ran.error)
    assert notes(conn) == ["mine"]


@pytest.mark.parametrize("text", ["commit", "rollback", "commit; begin", "rollback; begin"])
@pytest.mark.parametrize("in_table", [True, False])
def test_a_handler_that_ends_the_transaction_has_failed_and_the_drain_goes_no_further(
    conn: Connection, text: str, *, in_table: bool
) -> None:
    @handler("ends")
    def ends(job: Job) -> None:
        with job.transaction() as own:
            own.execute(text)

    if in_table:
        for _ in range(2):
            enqueue(conn, ends, tenant=1)
        (ran,) = drain(conn)
    else:
        ran = run(conn, ends, tenant=1)
    assert ran.outcome == "failed"
    assert isinstance(ran.error, TransactionEnded)
    assert conn.info.transaction_status == TransactionStatus.IDLE


def test_a_connection_that_a_job_has_kept_refuses(conn: Connection) -> None:
    kept = []

    @handler("keeps", transaction=True)
    def keeps(job: Job) -> None:
        kept.append(job.conn)

    assert run(conn, keeps, tenant=1).outcome == "done"
    with pytest.raises(JobError, match="is over"):
        kept[0].execute("select 1")


def test_the_callers_connection_object_is_as_it_was(connect: Callable[..., Connection]) -> None:
    notices = []
    conn = connect(autocommit=False, row_factory=dict_row)
    conn.add_notice_handler(lambda one: notices.append(one.message_primary))

    @handler("rows")
    def rows(job: Job) -> list[Any]:
        with job.transaction() as own:
            return list(own.execute("select 1").fetchone())

    enqueue(conn, rows, tenant=1)
    assert [one.result for one in drain(conn)] == [[1]]
    conn.execute("do $$ begin raise notice 'heard'; end $$")
    assert notices == ["heard"]


def test_what_is_not_the_jobs_comes_out_and_the_transaction_stays(conn: Connection) -> None:
    @handler("interrupted")
    def interrupted(job: Job) -> None:
        with job.transaction() as own:
            write(own, job)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(conn, interrupted, tenant=1)
    assert notes(conn) == []


def test_a_connection_that_can_have_no_transaction_is_refused(connect: Callable[..., Connection], conn: Connection) -> None:
    handler("one", tenantless=True)(lambda job: None)
    with pytest.raises(JobError, match="autocommit"):
        run(connect(), "one")
    with connect() as other, other.transaction():
        assert run(other, "one").outcome == "done"
    with pytest.raises(psycopg.errors.DivisionByZero):
        conn.execute("select 1 / 0")
    with pytest.raises(JobError, match="roll it back"):
        drain(conn)


# ---- asyncio


def test_coroutines_run_on_an_asynchronous_connection_and_on_a_synchronous_one(conn: Connection, database: Database) -> None:
    @handler("writes")
    async def writes(job: Job) -> str:
        async with job.transaction() as own:
            await own.execute("insert into test.rows (job, attempt, note) values (%s, 1, 'a')", [job.id])
            row = await (await own.execute("select current_setting('app.tenant')")).fetchone()
        return row[0]

    @handler("writes.once", transaction=True)
    async def writes_once(job: Job) -> None:
        await job.conn.execute("insert into test.rows (job, attempt, note) values (%s, 1, 'b')", [job.id])

    @handler("in.a.function")
    def in_a_function(job: Job) -> str:
        with job.transaction() as own:
            write(own, job, "c")
        return threading.current_thread().name

    async def all_of_them() -> None:
        async with await AsyncConnection.connect(database.worker_url) as own:
            assert (await arun(own, writes, tenant=3)).result == "3"
            for one in (writes, writes_once, in_a_function):
                await aenqueue(own, one, tenant=4)
            assert [one.outcome for one in await adrain(own)] == ["done"] * 3
            rows = await (await own.execute("select note from test.rows order by id")).fetchall()
            assert rows == [("a",), ("a",), ("b",), ("c",)]
            await own.rollback()

    asyncio.run(all_of_them())
    assert run(conn, writes, tenant=3).result == "3"
    enqueue(conn, writes_once, tenant=3)
    assert [one.outcome for one in drain(conn)] == ["done"]


def test_a_caller_that_is_cancelled_has_its_connection_back_only_when_the_job_has_ended(database: Database) -> None:
    started, go_on = threading.Event(), threading.Event()

    @handler("waits")
    def waits(job: Job) -> None:
        with job.transaction() as own:
            started.set()
            go_on.wait(10)
            write(own, job, "after")

    async def cancelled() -> list[Any]:
        async with await AsyncConnection.connect(database.worker_url) as own:
            task = asyncio.create_task(arun(own, waits, tenant=1))
            await asyncio.to_thread(started.wait, 10)
            task.cancel()
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            rows = await (await own.execute("select note from test.rows")).fetchall()
            await own.rollback()
            return rows

    assert asyncio.run(cancelled()) == [("after",)]


def test_a_coroutine_in_a_running_loop_is_told_of_the_other_form(conn: Connection) -> None:
    @handler("waits", tenantless=True)
    async def waits(job: Job) -> None:
        await asyncio.sleep(0)

    async def in_a_loop() -> None:
        run(conn, waits)

    with pytest.raises(JobError, match="arun"):
        asyncio.run(in_a_loop())
