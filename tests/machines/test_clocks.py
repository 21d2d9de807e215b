"""Machines whose clocks are wrong, and clocks that are put right while jobs run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.clocks import Clock
from support.jobs import Jobs
from support.processes import Supervisor
from support.waiting import wait_until

HANDLERS = "handlers_for_tests,handlers_of_sessions"


def started_after(jobs: Jobs, job: int) -> float:
    """Return the seconds from a job's insertion to its start, by the database's clock."""
    row = jobs[job]
    return float((row.started_at - row.created_at).total_seconds())


@pytest.mark.parametrize("shift", [600, -600])
def test_a_machine_whose_clock_is_wrong_takes_no_live_job_and_starts_none_early(
    shift: int, tmp_path: Path, start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """C34: leases, due times and retries are the database's; the skewed supervisor runs jobs beside one that is not."""
    clock = Clock(tmp_path / "clock", shift)
    skewed = start_supervisor(handlers=HANDLERS, environment=clock.environment, concurrency=2, poll="0.5s")
    skewed.wait_for_workers(2)
    # Alone at first, so that it is the one that measures.
    late, again = jobs.enqueue("ok", after=5), jobs.enqueue("fails_until_attempt", {"attempt": 2})
    jobs.wait_for(again)
    assert 1.0 <= (jobs[again].started_at - jobs.runs(again)[0].finished_at).total_seconds() <= 3.5
    start_supervisor(handlers=HANDLERS, concurrency=2, poll="0.5s").wait_for_workers(2)
    long = [jobs.enqueue("rests_by_select", {"seconds": 7}) for _ in range(3)]
    jobs.wait_for(late)
    assert 5 <= started_after(jobs, late) <= 7
    for job in long:
        assert jobs.wait_for(job, within=25).attempts == 1
        assert len(jobs.marks(job)) == 1
    assert abs(clock.seen_by(skewed) - shift) < 60


def test_a_clock_that_is_put_an_hour_ahead_and_back_stops_nothing(
    tmp_path: Path, start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """process C10: lengths are measured by a clock that nobody sets; no run is killed, none is left alone."""
    clock = Clock(tmp_path / "clock", 0)
    supervisor = start_supervisor(
        handlers=HANDLERS, environment=clock.environment, concurrency=2, max_runtime="20s", poll="0.5s"
    )
    workers = supervisor.wait_for_workers(2)
    long = jobs.enqueue("rests_by_select", {"seconds": 8})
    jobs.wait_for_mark(long)
    for shift in (3600, -3600):
        clock.set(shift)
        before = jobs[long].locked_until
        job = jobs.enqueue("fails_until_attempt", {"attempt": 2})
        assert jobs.wait_for(job, within=6).attempts == 2
        supervisor.wait_for_log(lambda line, shift=shift: abs(clock.shift_of(line) - shift) < 60)
        wait_until(lambda before=before: jobs[long].locked_until > before, within=3, what="the next heartbeat")
    assert jobs.wait_for(long, within=12).attempts == 1
    assert supervisor.workers() == workers
    overran = jobs.enqueue("rests_by_select", {"seconds": 60}, max_runtime=1, max_attempts=1)
    jobs.wait_for(overran, "dead", within=8)
    assert jobs.outcomes(overran) == ["overran"]
