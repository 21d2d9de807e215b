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

from support.containers import inner
from support.jobs import Jobs
from support.processes import Supervisor, is_running
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


def test_as_pid_1_it_drains_on_term_and_leaves_with_its_code(as_pid_1: Callable[..., Supervisor], jobs: Jobs) -> None:
    """C22: PID 1 is ours, and passes TERM on; the job finishes, exit 0."""
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


def supervisor_in(outer: Supervisor) -> psutil.Process:
    """Return the supervisor, which PID 1 stands in front of."""
    (supervisor,) = wait_until(
        lambda: [one for one in inner(outer).children() if one.cmdline()[0].startswith("fencepost: supervisor")],
        what="the supervisor under PID 1",
    )
    return supervisor


def test_as_pid_1_it_stands_in_front_of_the_supervisor_and_leaves_with_it(
    as_pid_1: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """G2, C17, rule 13: killed, the supervisor takes its workers and all that their jobs have started with it, at once."""
    outer = as_pid_1(concurrency=1)
    job = jobs.enqueue("hangs_with_a_program", {"new_session": True})
    jobs.wait_for_mark(job)
    supervisor = supervisor_in(outer)
    below = wait_until(
        lambda: [one for one in [supervisor.children(recursive=True)] if any(each.name() == "sleep" for each in one)],
        what="the program",
    )[0]
    assert inner(outer).cmdline()[0].startswith("fencepost: init")
    supervisor.kill()
    assert outer.wait(3) == 128 + signal.SIGKILL
    assert not any(one.is_running() for one in below)
    outer.wait_for_log("the supervisor has died")


def test_as_pid_1_a_stalled_supervisor_is_ended_and_the_container_with_it(
    as_pid_1: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """Rule 13: the kernel's timer, which has no power over PID 1, ends it before the lease of its job is over."""
    outer = as_pid_1(concurrency=1)
    job = jobs.enqueue("slow", {"seconds": 30})
    jobs.wait_for_mark(job)
    supervisor = supervisor_in(outer)
    supervisor.suspend()
    wait_until(lambda: not is_running(supervisor.pid), what="the end of the supervisor")
    assert jobs.seconds_until(jobs.get(job).locked_until) > 0
    assert outer.wait(5) == 128 + signal.SIGKILL


@pytest.mark.parametrize(
    "number", [signal.SIGUSR1, signal.SIGTTIN, signal.SIGHUP, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH]
)
def test_as_pid_1_it_passes_signals_on(as_pid_1: Callable[..., Supervisor], number: signal.Signals) -> None:
    """The supervisor does what it does for each, and says so; INT ends it, with its code."""
    outer = as_pid_1(concurrency=1)
    outer.wait_for_log("a worker is ready")
    said = len(outer.logs())
    inner(outer).send_signal(number)
    if number != signal.SIGWINCH:
        wait_until(lambda: len(outer.logs()) > said, what="a word on the signal")
    inner(outer).send_signal(signal.SIGINT)
    assert outer.wait(6) == 0


def test_as_pid_1_wrong_settings_and_a_term_in_its_first_moment_end_it_with_its_codes(
    as_pid_1: Callable[..., Supervisor],
) -> None:
    """B1: no signal is lost between PID 1's start and the supervisor's; what refuses the start is told by PID 1's own code."""
    assert as_pid_1(concurrency=0).wait(6) == 78
    outer = as_pid_1(concurrency=1)
    wait_until(lambda: inner(outer).cmdline()[0].startswith("fencepost: init"), what="PID 1")
    inner(outer).send_signal(signal.SIGTERM)
    assert outer.wait(6) == 0
