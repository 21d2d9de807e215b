"""As PID 1 of a container, and under other parents."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from support.jobs import Jobs
from support.processes import Supervisor
from support.waiting import wait_until

UNSHARE = ("--pid", "--fork", "--mount-proc", "--kill-child")


@pytest.fixture
def as_pid_1(start_supervisor: Callable[..., Supervisor], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Supervisor]:
    """Start a supervisor as PID 1 of a PID namespace of its own."""
    unshare = shutil.which("unshare")
    python = sys.executable

    def start(**settings: Any) -> Supervisor:
        monkeypatch.setattr(sys, "executable", unshare)
        try:
            return start_supervisor(command=(*UNSHARE, python, "-m", "fencepost", "run"), **settings)
        finally:
            monkeypatch.setattr(sys, "executable", python)

    return start


def inner(supervisor: Supervisor) -> psutil.Process:
    """Return the process that is PID 1 in there."""
    (child,) = wait_until(lambda: psutil.Process(supervisor.pid).children(), what="the supervisor in its namespace")
    return child


def test_as_pid_1_it_drains_on_term_and_leaves_with_its_code(as_pid_1: Callable[..., Supervisor], jobs: Jobs) -> None:
    """C22: PID 1 is the supervisor itself; the job finishes, exit 0."""
    outer = as_pid_1(concurrency=1, drain_timeout="10s")
    job = jobs.enqueue("slow", {"seconds": 2})
    jobs.wait_for_mark(job)
    inner(outer).send_signal(signal.SIGTERM)
    assert outer.wait(6) == 0
    assert (jobs.get(job).status, jobs.get(job).attempts) == ("done", 1)


def test_as_pid_1_it_reaps_strangers_and_ends_what_jobs_left(as_pid_1: Callable[..., Supervisor], jobs: Jobs) -> None:
    """G3, C4: no zombies of programs that others started; a killed job's daemon is gone before the job runs again."""
    outer = as_pid_1(concurrency=1)
    job = jobs.enqueue("hangs_with_a_daemon", max_runtime=1, max_attempts=1)
    assert jobs.wait_for(job, "dead", within=8).attempts == 1
    assert jobs.outcomes(job) == ["overran"]
    # A probe's orphan: entered from outside, as a container's exec does.
    enter = ["nsenter", "--pid", "--mount", "-t", str(inner(outer).pid), "sh", "-c", "(sleep 0.2 &) ; exit 0"]
    subprocess.run(enter, check=True)
    assert jobs.wait_for(jobs.enqueue("ok")).attempts == 1

    def strangers() -> list[str]:
        return [f"{one.pid} {one.status()}" for one in inner(outer).children(recursive=True) if one.name() in ("sleep", "sh")]

    wait_until(lambda: not strangers(), what="the end of all strangers")
    inner(outer).send_signal(signal.SIGTERM)
    assert outer.wait(6) == 0
