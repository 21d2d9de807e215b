"""A supervisor that stalls is ended by the kernel, and its workers with it, before its leases can pass to another (rule 13)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from fencepost.board import Phase, Record, boottime
from fencepost.deadline import Deadline
from fencepost.settings import Settings
from fencepost.supervisor.stall import ends_at
from support.jobs import Jobs
from support.processes import Supervisor, is_running
from support.waiting import wait_until


@pytest.mark.parametrize("stopped", ["alone", "with its workers"])
def test_a_stalled_supervisor_is_ended_with_its_workers_before_its_leases_are_over(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, stopped: str
) -> None:
    """C31, rule 13: nothing of it acts when its job runs elsewhere, and nothing wakes up to write late."""
    stalled = start_supervisor(concurrency=1)
    stalled.wait_for_workers(1)
    job = jobs.enqueue("writes", {"seconds": 30})
    jobs.wait_for_mark(job)
    worker = stalled.wait_for_worker_of(job)
    other = start_supervisor(concurrency=1)
    other.wait_for_workers(1)
    for pid in [stalled.pid, worker][: 1 if stopped == "alone" else 2]:
        os.kill(pid, signal.SIGSTOP)
    assert stalled.wait(10) == -signal.SIGKILL
    wait_until(lambda: not is_running(worker), within=0.3, what="the worker's end")
    row = jobs.get(job)
    assert (row.status, row.attempts) == ("running", 1)
    assert jobs.seconds_until(row.locked_until) > 0

    jobs.wait_for_mark(job, attempt=2, within=jobs.seconds_until(row.locked_until) + 1.5 + 1 + 0.5 + 1)
    assert jobs.outcomes(job) == ["lost"]
    assert jobs.rows(job) == []
    other.signal(signal.SIGQUIT)


STOPS_AT_ITS_FIRST_FORK = """
import os, signal

forks = []

def stop():
    forks.append(1)
    if len(forks) == 1:
        os.kill(os.getpid(), signal.SIGSTOP)

os.register_at_fork(after_in_parent=stop)
"""


def test_a_supervisor_that_stalls_as_it_forks_its_first_worker_is_ended_too(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """Rule 13: from before there is a worker that could claim."""
    job = jobs.enqueue("slow", {"seconds": 30})
    stalled = start_supervisor(concurrency=1, files={"sitecustomize.py": STOPS_AT_ITS_FIRST_FORK})
    jobs.wait_for_mark(job)
    assert stalled.wait(8) == -signal.SIGKILL
    wait_until(lambda: not stalled.left(), within=0.3, what="the worker's end")
    assert jobs.seconds_until(jobs.get(job).locked_until) > 0


def test_a_short_stop_costs_nobody_anything(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """Process C10, rules 12 and 13: back before a lease is in danger, it goes on."""
    supervisor = start_supervisor(concurrency=1)
    supervisor.wait_for_workers(1)
    job = jobs.enqueue("slow", {"seconds": 6})
    jobs.wait_for_mark(job)
    worker = supervisor.wait_for_worker_of(job)
    kept_until = jobs.get(job).locked_until
    for pid in (supervisor.pid, worker):
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: jobs.seconds_until(kept_until) < 3, what="half of the lease")
    for pid in (worker, supervisor.pid):
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: jobs.get(job).locked_until != kept_until, what="the next heartbeat")
    assert jobs.wait_for(job).attempts == 1
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 0


def test_a_run_ends_although_its_supervisor_is_away(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """C13, rule 13: a worker is ended by a timer of its own past max runtime, and told as one that overran."""
    supervisor = start_supervisor(concurrency=1, lease="60s", heartbeat="15s", kill_grace="0.2s")
    supervisor.wait_for_workers(1)
    job = jobs.enqueue("slow", {"seconds": 30}, max_runtime=0.5, max_attempts=1)
    jobs.wait_for_mark(job)
    worker = supervisor.wait_for_worker_of(job)
    supervisor.signal(signal.SIGSTOP)
    wait_until(lambda: not is_running(worker), within=0.5 + 0.2 + 3 + 0.5, what="the worker's end")
    supervisor.signal(signal.SIGCONT)
    assert jobs.wait_for(job, "dead").attempts == 1
    (run,) = jobs.runs(job)
    assert run.outcome == "overran"
    assert "timer" in run.error["detail"]
    # The next run's is its own.
    assert jobs.wait_for(jobs.enqueue("slow", {"seconds": 4})).attempts == 1


SETTINGS = Settings(database_url="postgresql://127.0.0.1/x", lease="6s", heartbeat="1.5s")


@pytest.mark.parametrize(
    ("held", "end"),
    [
        ([], 100.0),
        ([((0, 0.0), Record(Phase.idle, claim=3, claimed_at=50.0))], 100.0),
        ([((0, 0.0), Record(Phase.claiming, claim=3, claimed_at=99.0))], 99.0),
        ([((3, 98.0), Record(Phase.running, claim=3, claimed_at=96.0))], 98.0),
        ([((2, 98.0), Record(Phase.running, claim=3, claimed_at=97.0))], 97.0),
        (
            [
                ((3, 98.0), Record(Phase.finishing, claim=3, claimed_at=96.0)),
                ((0, 0.0), Record(Phase.running, claimed_at=97.5)),
            ],
            97.5,
        ),
        ([((0, 0.0), Record(Phase.running, claim=3, claimed_at=500.0))], 100.0),
        ([((0, 0.0), Record(Phase.running, claim=3, claimed_at=5.0))], 100.0 - SETTINGS.holds_for),
        ([((0, 0.0), Record(Phase.running, claim=3, claimed_at=float("nan")))], 100.0),
        ([((3, 99.0), None)], 100.0 - SETTINGS.holds_for),
    ],
)
def test_it_may_be_away_until_the_first_deadline_and_half_the_margin(held: list, end: float) -> None:
    """Rule 13: whatever a record says, never for longer than a lease from now, and never for less than half the margin."""
    assert ends_at(held, 100.0, SETTINGS) == pytest.approx(end + SETTINGS.holds_for + SETTINGS.margin / 2)


def test_a_timer_ends_a_process_that_has_stopped_itself_and_is_not_inherited() -> None:
    """Rule 13: what was forked, by a job say, has none."""
    there, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        deadline = Deadline()
        deadline.at(boottime() + 60)
        deadline.at(boottime() + 0.1)
        if os.fork() == 0:
            time.sleep(0.3)
            os.write(tell, b"lives")
            os._exit(0)
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    os.close(tell)
    assert os.read(there, 10) == b"lives"
    os.close(there)
