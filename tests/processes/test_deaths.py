"""How a worker died is known from the kernel, and told; what it held is booked, whatever becomes of that knowledge."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from signal import SIGABRT, SIGILL, SIGKILL, SIGSEGV, SIGTERM

import pytest

from support.databases import Database
from support.jobs import Jobs
from support.processes import Supervisor, is_running
from support.waiting import wait_until

HANDLERS = "handlers_for_tests,handlers_of_accidents,handlers_of_deaths"


def test_each_cause_of_death_is_told_apart(start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database) -> None:
    """A4, C6: SIGSEGV is not exit code 11; and a death is known at once, also if a copy of the process holds all it held."""
    causes = [
        ("segfault", {}, SIGSEGV, None),
        ("aborts", {}, SIGABRT, None),
        ("kills_itself", {"signum": SIGILL}, SIGILL, None),
        ("exits", {"code": 11}, None, 11),
        ("dies_and_leaves_a_copy", {}, SIGKILL, None),
    ]
    supervisor = start_supervisor(handlers=HANDLERS, concurrency=2)
    enqueued = [(jobs.enqueue(kind, payload, max_attempts=1), signum, code) for kind, payload, signum, code in causes]
    for job, signum, code in enqueued:
        jobs.wait_for(job, "dead")
        (run,) = jobs.runs(job)
        assert run.outcome == "crashed"
        assert (run.error.get("signal"), run.error.get("exit_code")) == (signum and signum.name, code)
        assert run.error.get("signal_number") == signum
        assert run.error.get("core_dumped", False) == ("core dumped" in run.error["message"])
        assert run.error["killed_by"] is None
        (line,) = [line for line in supervisor.logs() if line["event"] == "a worker has died" and line.get("job") == job]
        assert (line["signal"], line["exit_code"]) == (signum and signum.name, code)
    (run,) = jobs.runs(enqueued[-1][0])
    assert (run.finished_at - run.started_at).total_seconds() < 2
    (copy,) = [mark.note for mark in database.execute("select note from test.marks where note like 'copy %%'")]
    assert not is_running(int(copy.split()[1])), "booked before what it left was gone"


def test_a_supervisor_that_was_started_with_sigchld_ignored_knows_how_its_workers_die(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A9: the kernel throws the status away where it is ignored, so it is not."""
    command = ("--ignore-signal=CHLD", sys.executable, "-m", "fencepost", "run")
    monkeypatch.setattr("sys.executable", "/usr/bin/env")
    supervisor = start_supervisor(command=command, concurrency=1)
    job = jobs.enqueue("segfault", max_attempts=1)
    assert "SIGSEGV (signal 11)" in jobs.wait_for(job, "dead").last_error
    assert supervisor.is_alive()


ANOTHER_REAPER = """
import os

waitid = os.waitid


def waitid_after_another(*arguments):
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        pass
    return waitid(*arguments)


os.waitid = waitid_after_another
"""
"""Takes what the supervisor comes to wait for, each time just before it."""


def test_a_status_that_another_reaper_has_taken_is_a_crash_and_never_a_success(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """A9: also of a process that left with 0; the slot is filled again, and the supervisor stays."""
    supervisor = start_supervisor(concurrency=1, files={"sitecustomize.py": ANOTHER_REAPER})
    for code in (0, 1):
        job = jobs.enqueue("exits", {"code": code}, max_attempts=1)
        assert "exit status lost" in jobs.wait_for(job, "dead").last_error
        assert jobs.outcomes(job) == ["crashed"]
    assert jobs.wait_for(jobs.enqueue("ok")).attempts == 1
    assert supervisor.is_alive()


def test_a_death_behind_a_commit_repeats_the_run_unless_the_commit_is_the_end(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """A10: what the job has committed is there twice; with transaction=True once."""
    start_supervisor(handlers=HANDLERS, backoff="0s")
    twice, once = jobs.enqueue("commits_and_dies"), jobs.enqueue("writes_once_and_dies")
    for job, attempts in ((twice, [1, 2]), (once, [2])):
        assert jobs.wait_for(job).attempts == 2
        assert jobs.outcomes(job) == ["crashed", "done"]
        assert [row.attempt for row in jobs.rows(job)] == attempts


def test_a_worker_that_is_killed_at_max_runtime_is_reaped_before_its_run_is_booked(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """A8: twelve in a row; no zombie of theirs is left once they are booked, and no other child but the workers."""
    supervisor = start_supervisor(concurrency=4, kill_grace="0.1s")
    killed = 0
    for job in [jobs.enqueue("swallows_everything", max_runtime=0.5, max_attempts=1) for _ in range(12)]:
        jobs.wait_for(job, "dead", within=20)
        (run,) = jobs.runs(job)
        assert run.outcome == "overran"
        # One that was asked before it had come to swallow anything has obeyed, and its worker lives.
        for mark in jobs.marks(job) if run.error.get("signal") else []:
            killed += 1
            assert not Path(f"/proc/{mark.pid}").exists()
    assert killed >= 6
    workers = supervisor.wait_for_workers(4)
    children = Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children").read_text(encoding="ascii")
    assert sorted(map(int, children.split())) == sorted(workers)


def test_a_job_that_takes_its_supervisor_with_it_is_dead_after_as_many_attempts_as_it_has(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """D7, D8: each run is lost, and counted; what is left of it in the end is one supervisor that works."""
    job = jobs.enqueue("kills_its_supervisor", max_attempts=2)
    for attempt in (1, 2):
        supervisor = start_supervisor(handlers=HANDLERS, concurrency=1, lease="3s", heartbeat="0.5s")
        jobs.wait_for_mark(job, attempt=attempt, within=15)
        assert supervisor.wait() == -SIGKILL
    last = start_supervisor(handlers=HANDLERS, concurrency=1, lease="3s", heartbeat="0.5s")
    assert jobs.wait_for(job, "dead", within=15).attempts == 2
    assert jobs.outcomes(job) == ["lost"] * 2
    assert len(jobs.marks(job)) == 2
    assert jobs.wait_for(jobs.enqueue("ok")).attempts == 1
    assert last.is_alive()


UNKILLABLE = """
import os, signal, sys
from pathlib import Path

def but_not_if_it_sleeps_in_the_kernel(act):
    def send(pid, number):
        if number != signal.SIGKILL:
            act(pid, number)
    return send

def refuse(*_):
    raise OSError(11, "no timer is given")

import fencepost.deadline
fencepost.deadline.Deadline.__init__ = refuse
os.kill, os.killpg = map(but_not_if_it_sleeps_in_the_kernel, (os.kill, os.killpg))
sys.argv = ["fencepost", "run"]
from fencepost.cli import main
main()
"""


def test_a_worker_that_sigkill_does_not_end_keeps_its_slot_and_its_lease(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """C8, C9: named; nobody runs its job meanwhile, and nobody else has its slot. A drain leaves in time, with 75.

    Also if it is the drain itself that sends the first SIGKILL.
    """
    settings = {"lease": "3s", "heartbeat": "0.5s", "kill_grace": "0.3s", "drain_timeout": "0.5s"}
    supervisor = start_supervisor(command=("-c", UNKILLABLE), concurrency=2, queues="default,late", **settings)
    workers = supervisor.wait_for_workers(2)
    job = jobs.enqueue("swallows_everything", max_runtime=0.5, max_attempts=2)
    worker = supervisor.wait_for_worker_of(job)
    start_supervisor(concurrency=1, **settings)
    told = supervisor.wait_for_log("SIGKILL does not end a worker", within=6)
    assert (told["pid"], told["job"]) == (worker, job)
    held_until = jobs.get(job).locked_until
    wait_until(lambda: jobs.seconds_until(held_until) < -0.5, within=6, what="the end of the lease as it was then")
    row = jobs.get(job)
    assert (row.status, row.attempts) == ("running", 1)
    assert jobs.seconds_until(row.locked_until) > 0, "its lease was not kept"
    assert supervisor.workers() == workers
    assert jobs.wait_for(jobs.enqueue("ok")).attempts == 1
    late = jobs.enqueue("swallows_everything", max_attempts=1, queue="late")
    jobs.wait_for_mark(late)
    supervisor.signal(SIGTERM)
    assert supervisor.wait(6) == 75
    left = supervisor.wait_for_log("children that SIGKILL does not end are left behind")
    assert sorted(left["pids"]) == sorted(workers)
    asked = supervisor.wait_for_log("drain: claiming no more")
    assert (datetime.fromisoformat(left["time"]) - datetime.fromisoformat(asked["time"])).total_seconds() < 0.5 + 0.3 + 2
    # The kernel has ended it with its parent; only then, and by another, is it run again.
    assert jobs.wait_for(job, "dead", within=10).attempts == 2
    assert jobs.outcomes(job) == ["lost", "overran"]
