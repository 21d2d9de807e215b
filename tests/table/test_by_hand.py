"""Cancel and retry: every transition and refusal, and that a job has one end whoever races for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection, ClientCursor, Connection, RawCursor
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row, namedtuple_row, scalar_row

from fencepost import (
    InvalidJob,
    JobRow,
    RetryRefused,
    UnknownJob,
    acancel,
    aenqueue,
    aget,
    aretry,
    cancel,
    enqueue,
    get,
    retry,
)
from support.databases import Database
from support.jobs import Jobs
from support.verbs import Verbs
from support.waiting import wait_until


@pytest.fixture
def conn(database: Database) -> Any:
    """A connection as an application or an operator has it: in a transaction."""
    with database.conn(autocommit=False) as opened:
        yield opened


@pytest.fixture
def heard(connect: Callable[..., Connection], database: Database) -> Callable[[], list[str]]:
    """What has been notified of since the last look, where a supervisor is to be told."""
    database.add_supervisor()
    conn = connect()
    told: list[psycopg.Notify] = []
    conn.add_notify_handler(told.append)
    conn.execute("listen fencepost")

    def so_far() -> list[str]:
        conn.execute("select 1")
        payloads = [notify.payload for notify in told]
        told.clear()
        return payloads

    return so_far


def make(status: str, verbs: Verbs, jobs: Jobs, **options: Any) -> int:
    """Make a job that has come to this status."""
    job = jobs.enqueue("ok", **options)
    if status != "queued":
        claimed = verbs.must_claim()
        assert claimed.id == job
        if status != "running":
            ended = {"done": "done", "dead": "failed", "cancelled": "cancelled"}[status]
            assert verbs.finish(claimed, ended, final=True, summary=ended)
    assert jobs[job].status == status
    return job


# ---- cancel


def test_a_queued_job_is_cancelled_at_once(conn: Connection, verbs: Verbs, jobs: Jobs, heard: Callable[[], list[str]]) -> None:
    """Nobody has to be told, and no run is written: there was none."""
    job = make("queued", verbs, jobs)
    heard()
    assert cancel(conn, job) == "cancelled"
    conn.commit()
    row = jobs[job]
    assert (row.status, row.attempts, row.fence, row.started_at) == ("cancelled", 0, 0, None)
    assert row.finished_at is not None
    assert row.cancel_requested_at is not None
    assert jobs.runs(job) == []
    assert heard() == []
    assert verbs.claim() is None


def test_a_running_job_is_asked_and_the_supervisors_are_told(
    conn: Connection, verbs: Verbs, jobs: Jobs, heard: Callable[[], list[str]]
) -> None:
    """With the commit, by a payload that can't be a queue; asked again they are told again, and the time stays."""
    make("running", verbs, jobs)
    before = jobs[1]
    heard()
    assert cancel(conn, 1) == "running"
    assert heard() == []
    conn.commit()
    assert heard() == [""]
    asked_at = jobs[1].cancel_requested_at
    assert jobs[1]._replace(cancel_requested_at=None) == before
    assert asked_at is not None
    assert cancel(conn, 1) == "running"
    conn.commit()
    assert heard() == [""]
    assert jobs[1].cancel_requested_at == asked_at


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        ("done", "done"),
        ("failed", "cancelled"),
        ("crashed", "cancelled"),
        ("overran", "cancelled"),
        ("lost", "cancelled"),
        ("interrupted", "cancelled"),
        ("snoozed", "cancelled"),
        ("cancelled", "cancelled"),
    ],
)
def test_however_the_run_ends_a_job_that_was_asked_does_not_run_again(
    conn: Connection, verbs: Verbs, jobs: Jobs, outcome: str, status: str
) -> None:
    """Rule 18; a handler that returned is done."""
    job = jobs.enqueue("ok", max_attempts=5)
    claimed = verbs.must_claim()
    assert cancel(conn, job) == "running"
    conn.commit()
    assert verbs.finish(claimed, outcome)
    assert jobs[job].status == status
    assert jobs.outcomes(job) == [outcome]


def test_a_swept_job_that_was_asked_to_stop_is_cancelled(conn: Connection, verbs: Verbs, jobs: Jobs) -> None:
    """Its supervisor was gone, and nobody was left to be asked."""
    job = jobs.enqueue("ok", max_attempts=5)
    verbs.must_claim(lease=timedelta(microseconds=1))
    cancel(conn, job)
    conn.commit()
    expired = verbs.expired()
    assert len(verbs.sweep(expired)) == 1
    assert (jobs[job].status, jobs.outcomes(job)) == ("cancelled", ["lost"])


@pytest.mark.parametrize("status", ["done", "dead", "cancelled"])
def test_a_job_at_rest_is_not_touched_by_a_cancel(
    conn: Connection, verbs: Verbs, jobs: Jobs, heard: Callable[[], list[str]], status: str
) -> None:
    """The answer says where it is."""
    job = make(status, verbs, jobs)
    before = jobs[job]
    heard()
    assert cancel(conn, job) == status
    conn.commit()
    assert jobs[job] == before
    assert heard() == []


def test_a_cancel_frees_the_unique_key(conn: Connection, jobs: Jobs) -> None:
    """Of a queued job, with the same commit."""
    job = jobs.enqueue("ok", unique_key="k")
    cancel(conn, job)
    assert enqueue(conn, "ok", tenant=1, unique_key="k") != job
    conn.commit()


def test_a_cancel_that_is_rolled_back_was_never_asked(
    conn: Connection, verbs: Verbs, jobs: Jobs, heard: Callable[[], list[str]]
) -> None:
    """It is the caller's transaction."""
    running = make("running", verbs, jobs)
    queued = make("queued", verbs, jobs)
    heard()
    assert (cancel(conn, running), cancel(conn, queued)) == ("running", "cancelled")
    conn.rollback()
    assert (jobs[running].cancel_requested_at, jobs[queued].status) == (None, "queued")
    assert heard() == []


@pytest.mark.parametrize("first", ["cancel", "claim"])
def test_a_cancel_and_a_claim_that_meet_leave_one_of_two_things(
    conn: Connection, verbs: Verbs, jobs: Jobs, database: Database, first: str
) -> None:
    """C92: cancelled and never claimed, or running and asked to stop."""
    job = jobs.enqueue("ok")
    if first == "cancel":
        cancel(conn, job)
        assert verbs.claim() is None, "a claim does not wait, and does not take it"
        conn.commit()
        assert verbs.claim() is None
        assert jobs[job].status == "cancelled"
        return
    with database.worker_conn(autocommit=False) as claiming, ThreadPoolExecutor(1) as threads:
        claimed = Verbs(claiming).must_claim()
        waiting = threads.submit(cancel, conn, job)
        wait_for_blocked(database, 1)
        claiming.commit()
        assert waiting.result(10) == "running"
        conn.commit()
    assert jobs[job].cancel_requested_at is not None
    assert verbs.finish(claimed, "failed")
    assert jobs[job].status == "cancelled"


@pytest.mark.parametrize("first", ["cancel", "finish"])
@pytest.mark.parametrize("outcome", ["done", "failed"])
def test_a_cancel_and_a_finish_that_meet_agree_on_the_end(
    verbs: Verbs, jobs: Jobs, database: Database, first: str, outcome: str
) -> None:
    """C92: whoever comes second reads what the first has left; the job has one end, and the answer to cancel agrees with it."""
    job = jobs.enqueue("ok", max_attempts=5)
    claimed = verbs.must_claim()

    def finish(conn: Connection) -> bool:
        return Verbs(conn).finish(claimed, outcome)

    def ask(conn: Connection) -> str:
        return cancel(conn, job)

    acts: dict[str, Callable[[Connection], Any]] = {"finish": finish, "cancel": ask}
    (second,) = acts.keys() - {first}
    with (
        database.conn(autocommit=False) as one,
        database.conn(autocommit=False) as other,
        ThreadPoolExecutor(1) as threads,
    ):
        answers = {first: acts[first](one)}
        waiting = threads.submit(acts[second], other)
        wait_for_blocked(database, 1)
        one.commit()
        answers[second] = waiting.result(10)
        other.commit()
    assert answers["finish"] is True
    assert jobs.outcomes(job) == [outcome]
    if outcome == "done":
        assert jobs[job].status == "done"
        assert answers["cancel"] == ("done" if first == "finish" else "running")
    else:
        # Finished first, it had gone back to the queue, where it was cancelled at once.
        assert jobs[job].status == "cancelled"
        assert answers["cancel"] == ("cancelled" if first == "finish" else "running")


def test_a_heartbeat_does_not_wait_for_a_cancel(conn: Connection, verbs: Verbs, jobs: Jobs) -> None:
    """Rule 11: the row of one that is still to commit is skipped, and the next beat names it."""
    job = jobs.enqueue("ok")
    claimed = verbs.must_claim()
    cancel(conn, job)
    assert verbs.heartbeat(claimed) == {claimed.name: "locked"}
    conn.commit()
    (row,) = verbs.heartbeat_rows(claimed)
    assert (row.answer, row.cancel_requested) == ("renewed", True)


# ---- retry


@pytest.mark.parametrize("status", ["dead", "cancelled"])
def test_a_retried_job_has_a_fresh_budget_and_its_old_fence(
    conn: Connection, verbs: Verbs, jobs: Jobs, heard: Callable[[], list[str]], database: Database, status: str
) -> None:
    """Queued and due at once; what its last run left as error stays, and its runs."""
    job = make(status, verbs, jobs, max_attempts=1, queue="default", after=-0.0)
    database.execute(
        "update fencepost.jobs set interruptions = 1, run_at = '2020-01-01', cancel_requested_at = now() where id = %s", [job]
    )
    before = jobs[job]
    heard()
    assert retry(conn, job) is None
    assert heard() == []
    conn.commit()
    assert heard() == ["default"]
    row = jobs[job]
    assert (row.status, row.attempts, row.interruptions, row.fence) == ("queued", 0, 0, 1)
    assert (row.finished_at, row.cancel_requested_at) == (None, None)
    assert row.last_error == before.last_error is not None
    assert abs(jobs.seconds_until(row.run_at)) < 10
    claimed = verbs.must_claim()
    assert (claimed.id, claimed.fence, claimed.attempt) == (job, 2, 1)
    assert verbs.finish(claimed, "done")
    assert len(jobs.runs(job)) == 2


def test_a_job_that_never_ran_is_retried_too(conn: Connection, verbs: Verbs, jobs: Jobs) -> None:
    """Cancelled while queued."""
    job = jobs.enqueue("ok", after=3600)
    cancel(conn, job)
    retry(conn, job)
    conn.commit()
    assert verbs.must_claim().id == job


def test_a_queued_job_is_not_changed_by_a_retry(
    conn: Connection, verbs: Verbs, jobs: Jobs, heard: Callable[[], list[str]]
) -> None:
    """C93: not even brought forward."""
    job = make("queued", verbs, jobs, after=3600)
    before = jobs[job]
    heard()
    retry(conn, job)
    conn.commit()
    assert jobs[job] == before
    assert heard() == []


@pytest.mark.parametrize("status", ["running", "done"])
def test_a_job_that_runs_or_is_done_is_not_retried(conn: Connection, verbs: Verbs, jobs: Jobs, status: str) -> None:
    """C93: refused in words, and nothing changes; the caller's transaction goes on."""
    job = make(status, verbs, jobs)
    before = jobs[job]
    with pytest.raises(RetryRefused, match=f"job {job} is {status}: "):
        retry(conn, job)
    other = enqueue(conn, "ok", tenant=1)
    conn.commit()
    assert jobs[job] == before
    assert jobs[other].status == "queued"


def test_what_is_not_there_is_said(conn: Connection, jobs: Jobs) -> None:
    """C93: an id that nobody has, one that none can have, and what is none; the transaction goes on."""
    for verb in (cancel, retry):
        with pytest.raises(UnknownJob, match="there is no job 77"):
            verb(conn, 77)
        for wrong in (0, -1, 2**63, "1", 1.0, True, None):
            with pytest.raises(InvalidJob, match="a job's id is an int"):
                verb(conn, wrong)  # type: ignore[arg-type]
    assert get(conn, 77) is None
    assert conn.execute("select 1").fetchone() == (1,)


@pytest.mark.parametrize("twin", ["queued", "running"])
def test_a_retry_that_meets_a_live_duplicate_names_it(conn: Connection, verbs: Verbs, jobs: Jobs, twin: str) -> None:
    """C90: refused with its id, without a 23505, and the transaction goes on."""
    dead = make("dead", verbs, jobs, unique_key="k")
    living = make(twin, verbs, jobs, unique_key="k")
    before = jobs[dead]
    with pytest.raises(RetryRefused, match=f"job {dead} has the unique key of job {living}, which is {twin}") as refused:
        retry(conn, dead)
    assert "\n" not in str(refused.value)
    cancel(conn, living)
    conn.commit()
    assert jobs[dead] == before
    if twin == "queued":
        retry(conn, dead)
        conn.commit()
        assert jobs[dead].status == "queued"


def test_a_retry_waits_for_an_enqueue_of_its_key(conn: Connection, verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """C90: whether the other's transaction is rolled back is not known before."""
    dead = make("dead", verbs, jobs, unique_key="k")
    for commits in (True, False):
        with database.worker_conn(autocommit=False) as other, ThreadPoolExecutor(1) as threads:
            living = enqueue(other, "ok", tenant=1, unique_key="k")
            waiting = threads.submit(retry, conn, dead)
            wait_for_blocked(database, 1)
            if commits:
                other.commit()
                with pytest.raises(RetryRefused, match=f"of job {living}, which is queued"):
                    waiting.result(10)
                cancel(conn, living)
                conn.commit()
            else:
                other.rollback()
                assert waiting.result(10) is None
                conn.commit()
    assert jobs[dead].status == "queued"


def test_a_duplicate_that_the_callers_snapshot_can_not_see_is_refused_too(verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """Under another isolation its id is not to be had: that is said, and not looked for without end."""
    dead = make("dead", verbs, jobs, unique_key="k")
    with database.conn(autocommit=False) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        conn.execute("select 1 from fencepost.jobs")
        make("queued", verbs, jobs, unique_key="k")
        with pytest.raises(RetryRefused, match="the unique key of another job"):
            retry(conn, dead)


def test_several_who_retry_one_job_at_once_queue_it_once(verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """One wins, and the others see that it is queued."""
    job = make("dead", verbs, jobs, unique_key="k")
    together = threading.Barrier(10)

    def one(_: int) -> None:
        with database.conn() as conn:
            together.wait()
            retry(conn, job)

    with ThreadPoolExecutor(10) as threads:
        assert list(threads.map(one, range(10))) == [None] * 10
    assert jobs[job].status == "queued"
    assert verbs.must_claim().id == job
    assert verbs.claim() is None


def test_a_retry_that_comes_second_sees_what_became_of_the_job(
    conn: Connection, verbs: Verbs, jobs: Jobs, database: Database
) -> None:
    """C93: queued again and claimed meanwhile, it runs and is left alone."""
    job = make("dead", verbs, jobs)
    with database.conn(autocommit=False) as first, ThreadPoolExecutor(1) as threads:
        retry(first, job)
        # Due at the transaction's own time, so that it can be claimed before the commit.
        first.execute("update fencepost.jobs set run_at = now() where id = %s", [job])
        claimed = Verbs(first).must_claim()
        waiting = threads.submit(retry, conn, job)
        wait_for_blocked(database, 1)
        first.commit()
        with pytest.raises(RetryRefused, match=f"job {job} is running"):
            waiting.result(10)
    # A refusal is no error, and so the caller's transaction still has the row.
    conn.rollback()
    assert verbs.finish(claimed, "done")


def test_two_dead_jobs_of_one_key_that_are_retried_at_once_are_not_both_queued(
    verbs: Verbs, jobs: Jobs, database: Database
) -> None:
    """C90: the one that comes second is refused, and told of the first."""
    pair = [make("dead", verbs, jobs, unique_key="k") for _ in range(2)]
    together = threading.Barrier(2)

    def one(job: int) -> str:
        with database.conn() as conn:
            together.wait()
            try:
                retry(conn, job)
            except RetryRefused as error:
                return str(error)
        return "queued"

    with ThreadPoolExecutor(2) as threads:
        told = dict(zip(pair, threads.map(one, pair), strict=True))
    (winner,) = [job for job in pair if told[job] == "queued"]
    (loser,) = [job for job in pair if job != winner]
    assert f"of job {winner}, which is queued" in told[loser]
    assert [jobs[job].status for job in (winner, loser)] == ["queued", "dead"]


def test_one_that_can_not_be_retried_does_not_keep_the_others_from_it(verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """From SQL, all of a kind in one statement: those that are refused say why."""
    first, second, twin = (make("dead", verbs, jobs, unique_key=key) for key in ("a", "b", None))
    living = make("running", verbs, jobs, unique_key="a")
    rows = database.execute("select j.id, r.* from fencepost.jobs j, fencepost.retry(j.id) r where j.kind = 'ok' order by j.id")
    told = {row.id: (row.status, row.refused) for row in rows}
    assert told[first][0] == "dead"
    assert f"job {living}" in told[first][1]
    assert (told[second], told[twin]) == (("queued", None), ("queued", None))
    assert told[living][0] == "running"
    assert database.value("select fencepost.cancel(77)") is None
    assert database.execute("select * from fencepost.retry(77)")[0] == (None, "there is no job 77")


# ---- rights


@pytest.mark.parametrize("call", ["cancel(1)", "retry(1)"])
def test_only_who_is_let_cancels_and_retries(conn: Connection, database: Database, call: str) -> None:
    """A worker is not: a job with its login could else put back others."""
    with database.worker_conn() as worker, pytest.raises(psycopg.errors.InsufficientPrivilege, match=call[:5]):
        worker.execute(f"select fencepost.{call}")


# ---- get


def test_a_job_is_read_whole(conn: Connection, verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """Every column of the table, by its name, with JSON decoded."""
    job = jobs.enqueue("ok", {"n": 2**70, "a": [0.1, "é\u2028"]}, queue="default", unique_key="k", max_runtime=90, after=-0.0)
    columns = "select column_name from information_schema.columns where table_schema = 'fencepost' and table_name = 'jobs'"
    assert {field.name for field in fields(JobRow)} == {row.column_name for row in database.execute(columns)}
    claimed = verbs.must_claim()
    verbs.heartbeat(claimed, progress='{"done": 1, "total": null}')
    for status in ("running", "done"):
        found = get(conn, job)
        conn.commit()
        assert found is not None
        assert found.status == status
        for field in fields(JobRow):
            assert getattr(found, field.name) == getattr(jobs[job], field.name), field.name
        verbs.finish(claimed, "done", result='{"n": null}')
    assert found.payload == {"n": 2**70, "a": [0.1, "é\u2028"]}
    assert (found.result, found.progress, found.max_runtime) == ({"n": None}, {"done": 1, "total": None}, timedelta(seconds=90))
    with pytest.raises(AttributeError):
        found.status = "dead"  # type: ignore[misc]


def test_a_job_is_seen_by_whom_its_enqueuers_transaction_lets_see_it(conn: Connection, database: Database) -> None:
    """C105: by itself at once, by others with the commit."""
    job = enqueue(conn, "ok", tenant=1)
    with database.conn() as other:
        assert get(other, job) is None
        assert get(conn, job) is not None
        conn.commit()
        assert get(other, job) is not None


# ---- the caller's connection


@pytest.mark.parametrize("row_factory", [dict_row, namedtuple_row, scalar_row], ids=lambda one: one.__name__)
@pytest.mark.parametrize("cursor_factory", [None, ClientCursor, RawCursor], ids=["Cursor", "ClientCursor", "RawCursor"])
@pytest.mark.parametrize("autocommit", [True, False], ids=["autocommit", "transaction"])
def test_they_work_on_any_connection_and_leave_it_as_it_was(
    database: Database, jobs: Jobs, row_factory: Any, cursor_factory: Any, *, autocommit: bool
) -> None:
    """The caller's connection is the caller's: how it makes rows and writes dates must not matter."""
    job = jobs.enqueue("ok", max_runtime=90)
    with database.conn(row_factory=row_factory, cursor_factory=cursor_factory, autocommit=autocommit) as conn:
        conn.execute("set intervalstyle = 'sql_standard'; set datestyle = 'SQL, DMY'; set timezone = 'Asia/Tokyo'")
        assert cancel(conn, job) == "cancelled"
        found = get(conn, job)
        assert found is not None
        assert (found.status, found.max_runtime) == ("cancelled", timedelta(seconds=90))
        assert found.created_at == jobs[job].created_at
        assert retry(conn, job) is None
        expected = TransactionStatus.IDLE if autocommit else TransactionStatus.INTRANS
        assert conn.info.transaction_status == expected
        assert (conn.row_factory, conn.autocommit) == (row_factory, autocommit)
        conn.commit()
    assert jobs[job].status == "queued"


def test_the_async_forms_do_the_same(database: Database, jobs: Jobs) -> None:
    """On an AsyncConnection, in its transaction."""

    async def go() -> int:
        async with await AsyncConnection.connect(database.url, row_factory=dict_row) as conn:
            job = await aenqueue(conn, "ok", {"n": 1}, tenant=1)
            assert await acancel(conn, job) == "cancelled"
            await aretry(conn, job)
            assert await acancel(conn, job) == "cancelled"
            found = await aget(conn, job)
            assert found is not None
            assert (found.payload, found.status) == ({"n": 1}, "cancelled")
            assert await aget(conn, 77) is None
            for verb in (acancel, aretry):
                with pytest.raises(UnknownJob):
                    await verb(conn, 77)
                with pytest.raises(InvalidJob):
                    await verb(conn, 0)
            done = await aenqueue(conn, "ok", tenant=1)
            await conn.execute(
                "update fencepost.jobs set status = 'done', finished_at = now() where id = %s",
                [done],
            )
            with pytest.raises(RetryRefused):
                await aretry(conn, done)
            return job

    assert jobs[asyncio.run(go())].status == "cancelled"


def wait_for_blocked(database: Database, count: int) -> None:
    """Wait until so many sessions wait for a lock."""
    blocked = """
        select count(*) from pg_stat_activity
        where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0
    """
    wait_until(lambda: database.value(blocked) == count, what=f"{count} sessions that wait")
