"""Jobs that someone cancels or puts back while real supervisors run them, and jobs that are due in an order or at a time."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors

from fencepost import cancel, enqueue, retry
from support import nursery
from support.databases import Database
from support.jobs import Jobs
from support.processes import Supervisor
from support.servers import Server
from support.waiting import wait_until

CALM = {"lease": "60s", "heartbeat": "15s"}
"""As delivered: what comes sooner than this heartbeat came by notification."""


def seconds_from_request(row: object) -> float:
    """Return how long after the request to stop the job came to rest."""
    return (row.finished_at - row.cancel_requested_at).total_seconds()  # type: ignore[attr-defined,no-any-return]


def title(pid: int) -> str:
    """Return a process' title."""
    return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")


def by_command(supervisor: Supervisor, database: Database, job: int) -> subprocess.CompletedProcess[str]:
    """Run `fencepost cancel` beside the supervisor."""
    return nursery.run(["cancel", str(job)], supervisor.folder, {**supervisor.environment, "DATABASE_URL": database.url})


# ---- cancel


@pytest.mark.parametrize("kind", ["slow", "sleeps_async"])
def test_a_running_job_that_is_cancelled_is_asked_to_stop(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database, kind: str
) -> None:
    """C92: within a second, not with the heartbeat; the worker stays, and its next job is not hit."""
    supervisor = start_supervisor(concurrency=1, **CALM)
    (worker,) = supervisor.wait_for_workers(1)
    job = jobs.enqueue(kind, {"seconds": 60}, max_attempts=5)
    jobs.wait_for_mark(job)
    behind = jobs.enqueue("ok")
    assert cancel(database.owner, job) == "running"
    row = jobs.wait_for(job, "cancelled", within=5)
    assert seconds_from_request(row) < 1
    (run,) = jobs.runs(job)
    assert (run.outcome, row.last_error) == ("cancelled", "cancelled while it ran")
    assert jobs.wait_for(behind).attempts == 1
    assert supervisor.workers() == [worker]
    assert supervisor.wait_for_log("asking the run to stop")["reason"] == "cancel"


def test_a_handler_learns_that_it_is_cancelled_and_may_still_return(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C92: `.reason` is cancel; a handler that returned is done, and the exit code of `fencepost cancel` agrees with that."""
    supervisor = start_supervisor(concurrency=1, **CALM)
    job = jobs.enqueue("returns_when_stopped")
    jobs.wait_for_mark(job)
    done = by_command(supervisor, database, job)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"job {job} is done" in done.stderr
    assert jobs[job].result == {"reason": "cancel"}


def test_a_running_job_that_is_cancelled_and_goes_on_is_killed(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C92: after the grace, with its stacks on record; it does not run again, and its slot works on."""
    start_supervisor(concurrency=1, kill_grace="0.3s", **CALM)
    job = jobs.enqueue("swallows_everything", max_attempts=5)
    jobs.wait_for_mark(job)
    behind = jobs.enqueue("ok")
    cancel(database.owner, job)
    row = jobs.wait_for(job, "cancelled", within=5)
    assert seconds_from_request(row) < 0.3 + 1
    (run,) = jobs.runs(job)
    assert run.outcome == "cancelled"
    assert run.error["killed_by"] == "supervisor (cancel)"
    assert "in swallows_everything" in run.stack
    assert jobs.wait_for(behind).attempts == 1
    assert len(jobs.marks(job)) == 1


def test_a_cancel_that_nobody_was_notified_of_comes_with_the_heartbeat(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """A notification can be lost, and is not all there is."""
    start_supervisor(concurrency=1, heartbeat="0.5s", lease="3s")
    job = jobs.enqueue("slow", {"seconds": 60})
    jobs.wait_for_mark(job)
    database.execute("update fencepost.jobs set cancel_requested_at = clock_timestamp() where id = %s", [job])
    assert seconds_from_request(jobs.wait_for(job, "cancelled")) < 0.5 + 1


def test_a_cancel_is_not_lost_where_another_locks_the_row_as_the_supervisors_are_told(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """Rule 11: the beat skips what is locked; it asks once more, well before the next one is due."""
    start_supervisor(concurrency=1, **CALM)
    job = jobs.enqueue("slow", {"seconds": 60})
    jobs.wait_for_mark(job)
    lock = "select pg_sleep(0.3) from (select from fencepost.jobs where id = %s for no key update) locked"
    with database.conn(autocommit=False) as asking, database.conn() as other, ThreadPoolExecutor(1) as threads:
        cancel(asking, job)
        locking = threads.submit(other.execute, lock, [job])
        waits = "select cardinality(pg_blocking_pids(%s)) > 0"
        wait_until(lambda: database.value(waits, [other.info.backend_pid]), what="one that is next to lock the row")
        asking.commit()
        locking.result(10)
    assert seconds_from_request(jobs.wait_for(job, "cancelled", within=5)) < 2


@pytest.mark.parametrize("grace", ["5s", "0s"], ids=["asked", "killed"])
def test_a_job_that_finishes_as_it_is_cancelled_has_one_end(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database, grace: str
) -> None:
    """C92, B13: done with its row, or cancelled without; one that nobody cancelled is not hit, whoever had its slot before."""
    supervisor = start_supervisor(concurrency=4, kill_grace=grace, log_level="info", **CALM)
    supervisor.wait_for_workers(4)
    made = [jobs.enqueue("writes_once", {"seconds": 0.05}) for _ in range(100)]
    asked: set[int] = set()
    chance = random.Random(7)

    def all_ended() -> bool:
        rows = database.execute("select id, status from fencepost.jobs where status in ('queued', 'running')")
        for job in [row.id for row in rows if row.status == "running" and row.id not in asked]:
            if chance.random() < 0.1:
                asked.add(job)
                cancel(database.owner, job)
        return not rows

    wait_until(all_ended, within=50, what="the end of all jobs")
    status = {job: jobs[job].status for job in made}
    count = Counter(row.job for row in jobs.rows())
    assert {job: count[job] for job in made} == {job: int(status[job] == "done") for job in made}
    assert {job: jobs.outcomes(job) for job in made} == {job: [status[job]] for job in made}
    assert {job for job in made if status[job] == "cancelled"} <= asked
    # Both ends of the race were met, or this shows nothing.
    assert len(asked) > 10
    assert Counter(status[job] for job in asked)["cancelled"] > 5


def test_a_job_is_cancelled_while_its_supervisor_drains(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """It is not waited for any longer, and the drain is a clean one."""
    supervisor = start_supervisor(concurrency=1, drain_timeout="30s", **CALM)
    job = jobs.enqueue("slow", {"seconds": 60})
    jobs.wait_for_mark(job)
    supervisor.signal(signal.SIGTERM)
    supervisor.wait_for_log("drain: claiming no more")
    cancel(database.owner, job)
    assert seconds_from_request(jobs.wait_for(job, "cancelled")) < 1
    assert supervisor.wait(3) == 0


def test_a_job_that_crashes_again_and_again_is_cancelled(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C97: by one `fencepost cancel`, whose exit code agrees, within three seconds, whichever of its states it is met in."""
    supervisor = start_supervisor(concurrency=1, backoff="0s", **CALM)
    job = jobs.enqueue("kills_itself", {"after": 0.3}, max_attempts=1000)
    jobs.wait_for_mark(job, attempt=2)
    done = by_command(supervisor, database, job)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"job {job} is cancelled\n", "")
    row = jobs[job]
    assert row.status == "cancelled"
    assert seconds_from_request(row) < 3
    assert jobs.wait_for(jobs.enqueue("ok")).attempts == 1
    assert jobs[job] == row
    assert max(mark.at for mark in jobs.marks(job)) < row.finished_at


# ---- retry


def test_a_dead_job_that_is_retried_runs_at_once(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C93: the supervisor is told of it, its attempts count anew, its fence goes on; while it runs it is not retried."""
    # Two, so that one is always idle, and the supervisor need not look again before it polls.
    supervisor = start_supervisor(concurrency=2, poll="30s", **CALM)
    supervisor.wait_for_workers(2)
    job = jobs.enqueue("fails", max_attempts=1)
    jobs.wait_for(job, "dead")
    wait_until(lambda: all("idle" in title(pid) for pid in supervisor.workers()), what="idle workers")
    retried_at = database.value("select clock_timestamp()")
    retry(database.owner, job)
    wait_until(lambda: jobs[job].status == "dead" and len(jobs.runs(job)) == 2, within=5, what="the second run")
    row = jobs[job]
    assert (row.attempts, row.fence) == (1, 2)
    assert (row.started_at - retried_at).total_seconds() < 1
    assert [run.attempt for run in jobs.runs(job)] == [1, 1]


# ---- when a job starts


def test_a_job_starts_with_its_enqueuers_commit_and_not_before(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C105: others start meanwhile; then it is told of at once, without a poll. Rolled back, it never was."""
    start_supervisor(concurrency=2, poll="30s", **CALM)
    with database.conn(autocommit=False) as conn:
        rolled_back = enqueue(conn, "ok", tenant=1)
        conn.rollback()
        job = enqueue(conn, "ok", tenant=1)
        for _ in range(3):
            jobs.wait_for(jobs.enqueue("ok"))
        committed_at = database.value("select clock_timestamp()")
        assert jobs.marks(job) == []
        conn.commit()
    started = jobs.wait_for(job).started_at
    assert timedelta(0) < started - committed_at < timedelta(seconds=1)
    assert jobs.marks(rolled_back) == []


def test_a_scheduled_job_starts_when_it_is_due(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """C84: never earlier, by the database's clock, and soon after, though polls are far apart."""
    supervisor = start_supervisor(concurrency=2, poll="30s", **CALM)
    supervisor.wait_for_workers(2)
    made = [
        jobs.enqueue("ok", after=1.5),
        jobs.enqueue("ok", run_at=datetime.now(UTC) + timedelta(seconds=1)),
        jobs.enqueue("ok", after=0.7, priority=5),
    ]
    for job in made:
        row = jobs.wait_for(job)
        assert timedelta(0) <= row.started_at - row.run_at < timedelta(seconds=0.5)


def test_jobs_start_by_queue_then_priority_then_age(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """C101: QUEUES is in order of preference; lower priorities first; first in, first out."""
    wanted: list[tuple[str, int]] = [("first", -1), ("first", 0), ("first", 0), ("second", -9), ("second", 0), ("second", 7)]
    made: list[tuple[int, tuple[str, int]]] = []
    for queue, priority in (wanted[4], wanted[1], wanted[5], wanted[0], wanted[2], wanted[3]):
        made.append((jobs.enqueue("quick", queue=queue, priority=priority), (queue, priority)))
    nobody = jobs.enqueue("quick", queue="third", priority=-99)
    start_supervisor(concurrency=1, queues="first,second")
    rows = [(jobs.wait_for(job).started_at, job, key) for job, key in made]
    assert [key for _, _, key in sorted(rows)] == wanted
    same = [job for _, job, key in sorted(rows) if key == ("first", 0)]
    assert same == sorted(same)
    assert jobs[nobody].status == "queued"


# ---- all of it at once


@pytest.mark.timeout(120)
def test_bulk_enqueues_and_cancels_cost_no_job_an_attempt(
    start_server: Callable[..., Server],
    create_database: Callable[[Server], Database],
    start_supervisor: Callable[..., Supervisor],
) -> None:
    """C100, C90: two enqueue twenty keys, one by one in any order or together in theirs; two others cancel all and retry.

    A deadlock among those who hold many rows at a time is theirs to repeat: PostgreSQL ends one of them for it. It costs no run
    anything, and does not come to one who enqueues a single job.
    """
    database = create_database(start_server(deadlock_timeout="100ms"))
    jobs = Jobs(database)
    supervisors = [
        start_supervisor(url=database.worker_url, concurrency=2, heartbeat="0.2s", lease="3s", kill_grace="5s")
        for _ in range(2)
    ]
    made = [jobs.enqueue("quick") for _ in range(300)]
    over = threading.Event()
    done: Counter[str] = Counter()

    keys = [f"key {number:02}" for number in range(20)]

    def enqueue_one_by_one() -> None:
        shuffled = random.Random(1)
        with database.conn() as conn:
            while not over.is_set():
                for key in shuffled.sample(keys, len(keys)):
                    enqueue(conn, "writes_quickly", tenant=1, unique_key=key)

    def enqueue_together() -> None:
        while not over.is_set():
            with contextlib.suppress(errors.DeadlockDetected), database.conn(autocommit=False) as conn:
                for key in keys:
                    enqueue(conn, "writes_quickly", tenant=1, unique_key=key)
                done["enqueued"] += 1

    def cancel_and_retry() -> None:
        with database.conn() as conn:
            while not over.is_set():
                with contextlib.suppress(errors.DeadlockDetected):
                    cancel_all_and_retry_some(conn)

    def cancel_all_and_retry_some(conn: psycopg.Connection[Any]) -> None:
        conn.execute(
            "select fencepost.cancel(id) from (select id from fencepost.jobs where unique_key is not null"
            " and status in ('queued', 'running') order by id) living"
        )
        some = conn.execute("select id from fencepost.jobs where status = 'cancelled' order by random() limit 5").fetchall()
        for (job,) in some:
            refused = conn.execute("select refused from fencepost.retry(%s)", [job]).fetchone()
            done["retried" if refused == (None,) else "refused"] += 1

    with ThreadPoolExecutor(4) as threads:
        acts = (enqueue_one_by_one, enqueue_together, cancel_and_retry, cancel_and_retry)
        working = [threads.submit(act) for act in acts]
        try:
            began = time.monotonic()
            wait_until(lambda: time.monotonic() - began > 4 or any(one.done() for one in working), what="four seconds")
        finally:
            over.set()
        for one in working:
            one.result(20)
    for job in made:
        assert jobs.wait_for(job, within=20).attempts == 1
    wait_until(lambda: not database.value("select count(*) from fencepost.jobs where status in ('queued', 'running')"))
    assert min(done["enqueued"], done["retried"], done["refused"]) > 0, done
    rows = Counter(row.job for row in jobs.rows())
    ended = database.execute("select id, status, attempts from fencepost.jobs where kind = 'writes_quickly'")
    assert {row.id: rows[row.id] for row in ended} == {row.id: int(row.status == "done") for row in ended}
    assert {outcome for (outcome,) in database.execute("select distinct outcome from fencepost.job_runs")} <= {
        "done",
        "cancelled",
    }
    for supervisor in supervisors:
        assert supervisor.is_alive()
        # A heartbeat may fail: here it has 0.13 s, beside all of that (protocol, rule 10).
        loud = [line for line in supervisor.logs() if line.get("level") != "debug"]
        assert not [line for line in loud if line.get("level") == "error" or "failed" in line["event"]]
