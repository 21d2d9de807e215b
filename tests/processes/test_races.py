"""Signals that come at the wrong moment: to a run that ends, to a claim, to a process that was just forked."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGTERM, SIGUSR2

import pytest

from support.databases import Database
from support.jobs import Jobs
from support.processes import Supervisor
from support.waiting import wait_until

HANDLERS = "handlers_for_tests,handlers_of_accidents,handlers_of_deaths"


def test_a_stop_lands_in_the_code_of_its_job_and_nowhere_else(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database, tmp_path: Path
) -> None:
    """B5: neither in claims and finishes, whosever the order is, nor in the finish of its own run: that one is done."""
    supervisor = start_supervisor(handlers=HANDLERS, concurrency=1, kill_grace="0.5s")
    jobs.wait_for(jobs.enqueue("slow", {"seconds": 60}, max_runtime=0.5, max_attempts=1), "dead")
    # Its order still stands on the board, and the signal that goes with it comes again and again.
    (worker,) = supervisor.wait_for_workers(1)
    quick = [jobs.enqueue("quick") for _ in range(100)]

    def all_done() -> bool:
        os.kill(worker, SIGUSR2)
        return database.value("select count(*) from fencepost.jobs where kind = 'quick' and status = 'done'") == len(quick)

    wait_until(all_done, within=20)
    assert {jobs.get(job).attempts for job in quick} == {1}

    for kind in ("ends_when_told", "writes_once_when_told"):
        path = tmp_path / kind
        job = jobs.enqueue(kind, {"path": str(path)}, max_runtime=2)
        jobs.wait_for_mark(job)
        with database.conn(autocommit=False) as conn:
            conn.execute("select from fencepost.jobs where id = %s for update", [job])
            path.touch()
            supervisor.wait_for_log(lambda line, job=job: line.get("job") == job and line["event"].startswith("asking the run"))
            asked_at = time.monotonic()
            # Past the grace: from here on it would be killed if it were not finishing.
            wait_until(lambda: time.monotonic() - asked_at > 0.7, what="the end of the grace")  # noqa: B023
        assert jobs.wait_for(job).attempts == 1, kind
        assert jobs.outcomes(job) == ["done"], kind
    assert supervisor.workers() == [worker]
    assert not [line for line in supervisor.logs() if line["event"] in ("the worker failed", "a worker has died")]


def test_a_drain_that_comes_as_a_job_is_claimed_gives_it_back_uncounted(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """B4: claimed behind the drain's beginning, it is not started, and is back in the queue within a second."""
    job = jobs.enqueue("ok")
    with database.conn(autocommit=False) as conn:
        # Claims wait for this; whatever else a supervisor asks does not.
        conn.execute("lock table fencepost.jobs in exclusive mode")
        supervisor = start_supervisor(concurrency=1)
        supervisor.wait_for_workers(1)
        waiting = (
            "select from pg_stat_activity where datname = %s and wait_event_type = 'Lock' and query ilike '%%skip locked%%'"
        )
        wait_until(lambda: database.execute(waiting, [database.name]), what="a claim that waits")
        supervisor.signal(SIGTERM)
        supervisor.wait_for_log("drain: claiming no more")
    released_at = time.monotonic()
    row = wait_until(lambda: (found := jobs.get(job)).fence == 1 and found.status == "queued" and found)
    assert time.monotonic() - released_at < 1
    assert (row.attempts, row.interruptions) == (0, 1)
    assert jobs.marks(job) == []
    assert supervisor.wait() == 0


def test_what_a_claim_has_waited_for_is_not_counted_as_runtime(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """It waits with the finish that it travels with, longer than its job may run: that one has all of its time all the same."""
    first, second = jobs.enqueue("ok"), jobs.enqueue("slow", {"seconds": 0.5}, max_runtime=2, max_attempts=1)
    with database.conn(autocommit=False) as conn:
        # Finishes wait for this, claims do not.
        conn.execute("lock table fencepost.job_runs in share mode")
        start_supervisor(concurrency=1, lease="30s", heartbeat="5s", kill_grace="0.5s")
        jobs.wait_for_mark(first)
        waiting = "select from pg_stat_activity where datname = %s and wait_event_type = 'Lock'"
        wait_until(lambda: database.execute(waiting, [database.name]), what="a finish that waits")
        waits_since = time.monotonic()
        wait_until(lambda: time.monotonic() - waits_since > 2.5, what="the end of what the second job may take")
    assert jobs.wait_for(second, ("done", "dead")).status == "done"
    assert jobs.outcomes(first) == jobs.outcomes(second) == ["done"]


TERM_IN_THE_FIRST_INSTANT = """
import os, signal
forks = 0

def before():
    global forks
    forks += 1
    if os.path.exists("term the supervisor"):
        os.kill(os.getpid(), signal.SIGTERM)

def in_child():
    if forks in (2, 3):
        os.kill(os.getpid(), signal.SIGTERM)

os.register_at_fork(before=before, after_in_child=in_child)
"""


def test_a_signal_in_the_instant_of_a_fork_is_for_whom_it_was_sent_to(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """B1, B2: to a child it ends that child, and the supervisor does not drain; to the supervisor it is not lost."""
    supervisor = start_supervisor(
        handlers=HANDLERS, concurrency=3, files={"sitecustomize.py": TERM_IN_THE_FIRST_INSTANT}, poll="30s"
    )
    workers = supervisor.wait_for_workers(3)
    died = [line for line in supervisor.logs() if line["event"] == "a worker has died"]
    assert [(line["signal"], line["killed_by_us"], line["ready"]) for line in died] == [("SIGTERM", None, False)] * 2
    assert not [line for line in supervisor.logs() if line["event"].startswith("drain")]
    told = jobs.wait_for(jobs.enqueue("tells_what_is_blocked")).result
    assert told == {"here": "", "thread": "", "program": ""}
    wait_until(lambda: all(title.endswith("idle") for title in supervisor.titles(supervisor.workers())))
    (supervisor.folder / "term the supervisor").touch()
    os.kill(workers[0], SIGTERM)
    assert supervisor.wait(6) == 0
    supervisor.wait_for_log("drain: claiming no more")


def test_a_signal_to_all_that_is_in_its_group_lets_running_jobs_finish(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B6, B7: `timeout` passes TERM on to the supervisor and to its group; more of them, as a worker leaves, end nobody."""
    command = ("60", sys.executable, "-m", "fencepost", "run")
    monkeypatch.setattr("sys.executable", "/usr/bin/timeout")
    supervisor = start_supervisor(command=command, concurrency=2)
    supervisor.wait_for_workers(2)
    job = jobs.enqueue("slow", {"seconds": 0.7})
    jobs.wait_for_mark(job)
    supervisor.signal(SIGTERM)
    wait_until(lambda: supervisor.left() == [] or supervisor.signal_group(SIGTERM), within=6, what="its end")
    row = jobs.get(job)
    assert (row.status, row.attempts) == ("done", 1)
    # Of its workers: `timeout` sends CONT behind TERM, and the supervisor tells of that.
    assert not [line for line in supervisor.logs() if line.get("signal") and "worker" in line]
    supervisor.wait_for_log(lambda line: line["event"] == "the supervisor leaves" and line["exit_code"] == 0)
