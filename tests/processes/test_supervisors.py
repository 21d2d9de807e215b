"""Supervisors that freeze, die and leave: what their jobs come to."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from support.databases import Database
from support.jobs import Jobs
from support.processes import WITHOUT_TIMERS, Supervisor, is_running
from support.waiting import wait_until


def runs_overlap(jobs: Jobs, job: int) -> bool:
    """Whether two runs of a job were under way at one time, by the marks that they left."""
    ends = {mark.attempt: mark.at for mark in jobs.marks(job, "end")}
    starts = {mark.attempt: mark.at for mark in jobs.marks(job)}
    return any(starts[attempt + 1] < ends[attempt] for attempt in ends if attempt + 1 in starts)


@pytest.mark.parametrize("first", ["the worker", "the supervisor", "both"])
def test_a_frozen_writer_comes_too_late(start_supervisor: Callable[..., Supervisor], jobs: Jobs, first: str) -> None:
    """C31, rule 12: its late write is void if it wakes first, and it is stopped if its supervisor does; the slot works on.

    If both wake at once, it may be told as it ends by itself.

    Where the kernel gives no timer, that is: with one, neither wakes again.
    """
    frozen = start_supervisor(concurrency=1, files=WITHOUT_TIMERS)
    frozen.wait_for_workers(1)
    job = jobs.enqueue("writes", {"seconds": 3}, queue="default")
    jobs.wait_for_mark(job)
    worker = frozen.wait_for_worker_of(job)
    for pid in (frozen.pid, worker):
        os.kill(pid, signal.SIGSTOP)
    other = start_supervisor(concurrency=1)
    jobs.wait_for_mark(job, attempt=2, within=6 + 1.5 + 1 + 0.5 + 3)
    done = jobs.wait_for(job)
    if first == "the worker":
        # Alone, so that nobody stops it from trying: the fence is all that is there.
        os.kill(worker, signal.SIGCONT)
        frozen.wait_for_log("the lease was lost: this run is void", within=5)
        os.kill(frozen.pid, signal.SIGCONT)
    elif first == "both":
        for pid in (worker, frozen.pid):
            os.kill(pid, signal.SIGCONT)
    else:
        os.kill(frozen.pid, signal.SIGCONT)
        frozen.wait_for_log("the lease was lost: the run is killed", within=5)
        wait_until(lambda: not is_running(worker), within=2, what="the end of the late worker")

    assert done.attempts == 2
    assert [row.attempt for row in jobs.rows(job)] == [2]
    assert jobs.outcomes(job) == ["lost", "done"]
    other.signal(signal.SIGTERM)
    assert other.wait() == 0
    # The one that was late works on.
    assert jobs.wait_for(jobs.enqueue("ok")).attempts == 1
    assert jobs.get(job).fence == done.fence
    assert len(jobs.rows(job)) == 1


def test_a_run_that_still_has_its_lease_survives_a_freeze(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """process C10, rule 12: on waking, the supervisor asks the table, and kills only what is lost.

    Where the kernel gives no timer: with one, a freeze of less than the lease is survived so.
    """
    supervisor = start_supervisor(concurrency=1, files=WITHOUT_TIMERS)
    supervisor.wait_for_workers(1)
    job = jobs.enqueue("slow", {"seconds": 9})
    jobs.wait_for_mark(job)
    worker = supervisor.wait_for_worker_of(job)
    for pid in (supervisor.pid, worker):
        os.kill(pid, signal.SIGSTOP)
    # Past the lease, with nobody there to sweep it.
    wait_until(lambda: jobs.get(job).locked_until.timestamp() + 0.5 < time.time(), within=10, what="the end of the lease")
    for pid in (worker, supervisor.pid):
        os.kill(pid, signal.SIGCONT)
    assert jobs.wait_for(job, within=15).attempts == 1
    assert len(jobs.marks(job)) == 1


def test_the_jobs_of_a_killed_supervisor_are_taken_over(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """C17, C28, C39, D8, G2: its children die with it, and others run its jobs at attempt 2 in the promised time."""
    killed = start_supervisor(concurrency=2)
    killed.wait_for_workers(2)
    taken = [jobs.enqueue("slow", {"seconds": 4}) for _ in range(2)]
    for job in taken:
        jobs.wait_for_mark(job)
    workers = killed.workers()
    other = start_supervisor(concurrency=2)
    others = set(other.wait_for_workers(2))
    died_at = time.monotonic()
    killed.signal(signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, workers)), within=1, what="the children's end")
    for job in taken:
        jobs.wait_for_mark(job, attempt=2, within=6 + 1.5 + 1 + 0.5 + 1 - (time.monotonic() - died_at))
        assert jobs.wait_for(job).attempts == 2
        assert jobs.outcomes(job) == ["lost", "done"]
        assert not runs_overlap(jobs, job)
    # Ten seconds old by now: what ends children with their parent has not ended any before.
    assert set(other.workers()) == others


def test_a_long_job_keeps_its_lease_although_it_holds_the_interpreter(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """C26, C27: the parent beats, so one run of 8 s under a lease of 3 s, with two supervisors looking."""
    supervisors = [start_supervisor(concurrency=1, lease="3s", heartbeat="0.6s") for _ in range(2)]
    job = jobs.enqueue("holds_the_interpreter", {"seconds": 8})
    jobs.wait_for_mark(job)
    least = 3.0
    while (row := jobs.get(job)).status == "running":
        if row.locked_until is not None:
            left = jobs.seconds_until(row.locked_until)
            least = min(least, left)
    assert jobs.wait_for(job).attempts == 1
    assert len(jobs.marks(job)) == 1
    assert least > 1
    assert all(supervisor.is_alive() for supervisor in supervisors)


def test_a_heartbeat_that_crosses_a_finish_costs_nobody_anything(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """Rule 15: a row that is finished as the beat arrives is no lost lease; its worker is not killed for it."""
    database.execute("select fencepost.enqueue('quick', tenant => '1') from generate_series(1, 1500)")
    supervisor = start_supervisor(concurrency=4, lease="1s", heartbeat="0.1s", log_level="info")
    wait_until(
        lambda: database.value("select count(*) from fencepost.jobs where status = 'done' and attempts = 1") == 1500,
        within=40,
        what="the end of all jobs",
    )
    told = [line["event"] for line in supervisor.logs()]
    assert not [event for event in told if event == "a worker has died" or "lease was lost" in event]


def test_a_drain_lets_a_running_job_finish(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """B6, C19, promise 8: TERM, even to the whole group; the job finishes, no other one starts, exit 0."""
    supervisor = start_supervisor(concurrency=1)
    job = jobs.enqueue("slow", {"seconds": 2})
    jobs.wait_for_mark(job)
    behind = jobs.enqueue("ok")
    supervisor.signal_group(signal.SIGTERM)
    assert supervisor.wait(6) == 0
    assert (jobs.get(job).status, jobs.get(job).attempts) == ("done", 1)
    assert jobs.get(behind).status == "queued"
    assert jobs.marks(behind) == []


def test_an_interrupted_job_goes_back_at_once_and_uncounted(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C21, C25: four drains that had to stop it, and the fifth run may finish; nothing half-done is committed."""
    job = jobs.enqueue("slow_until_fence", {"fence": 5}, max_attempts=3)
    for stops in range(1, 5):
        supervisor = start_supervisor(concurrency=1, drain_timeout="0.5s")
        wait_until(lambda stops=stops: len(jobs.marks(job)) == stops, what="the run's start")
        asked_at = time.monotonic()
        supervisor.signal(signal.SIGTERM)
        assert supervisor.wait(0.5 + 1 + 2) == 75
        assert time.monotonic() - asked_at < 0.5 + 1 + 2
        row = jobs.get(job)
        assert (row.status, row.attempts, row.interruptions) == ("queued", 0, stops)
        assert jobs.rows(job) == []
    start_supervisor(concurrency=1)
    assert jobs.wait_for(job).attempts == 1
    assert jobs.outcomes(job) == ["interrupted"] * 4 + ["done"]
    assert len(jobs.rows(job)) == 1


@pytest.mark.parametrize("kind", ["hangs_in_c", "swallows_everything"])
def test_a_drain_kills_what_does_not_stop(start_supervisor: Callable[..., Supervisor], jobs: Jobs, kind: str) -> None:
    """B9: gone at the latest DRAIN_TIMEOUT + KILL_GRACE + 2 s after TERM, the job back in the queue, uncounted."""
    supervisor = start_supervisor(concurrency=1, drain_timeout="1s", kill_grace="0.5s")
    job = jobs.enqueue(kind)
    jobs.wait_for_mark(job)
    asked_at = time.monotonic()
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait(10) == 75
    assert time.monotonic() - asked_at < 1 + 0.5 + 2
    row = jobs.get(job)
    assert (row.status, row.attempts, row.interruptions) == ("queued", 0, 1)


def test_terms_in_quick_succession_are_one_and_a_later_one_stops_jobs(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """B6, B12, C20: five in an instant let the job go on; another, a Ctrl-C for the whole group, stops it a second later."""
    supervisor = start_supervisor(concurrency=1, drain_timeout="20s")
    job = jobs.enqueue("slow", {"seconds": 30})
    jobs.wait_for_mark(job)
    for signum in (signal.SIGINT, *[signal.SIGTERM] * 4):
        supervisor.signal_group(signum)
    first = supervisor.wait_for_log(lambda line: line["event"].startswith("drain: claiming no more"))
    sent = time.monotonic()
    wait_until(lambda: time.monotonic() - sent > 1.1, what="the second in which signals are one")
    assert jobs.get(job).status == "running"
    assert not [line for line in supervisor.logs() if "stopping running jobs now" in line["event"]], first
    supervisor.signal_group(signal.SIGINT)
    assert supervisor.wait(3) == 75
    assert jobs.get(job).status == "queued"
    assert supervisor.left() == []


def test_quit_kills_at_once(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """QUIT: no grace, the job back in the queue."""
    supervisor = start_supervisor(concurrency=1, drain_timeout="20s", kill_grace="10s")
    job = jobs.enqueue("swallows_everything")
    jobs.wait_for_mark(job)
    supervisor.signal(signal.SIGQUIT)
    assert supervisor.wait(3) == 75
    assert jobs.get(job).status == "queued"


def test_an_idle_supervisor_drains_at_once(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """B9: its workers sit idle in a read."""
    supervisor = start_supervisor(concurrency=4)
    supervisor.wait_for_workers(4)
    asked_at = time.monotonic()
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait(5) == 0
    assert time.monotonic() - asked_at < 1.5


def test_other_signals_do_not_end_the_supervisor(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """process C14: a job signals its group and its parent; only TERM would drain."""
    supervisor = start_supervisor(concurrency=1)
    supervisor.wait_for_workers(1)
    for signum in (signal.SIGUSR2, signal.SIGALRM, signal.SIGVTALRM, signal.SIGRTMIN, signal.SIGPIPE, signal.SIGWINCH):
        supervisor.signal(signum)
    job = jobs.enqueue("signals_its_group", max_attempts=1)
    assert "SIGKILL" in jobs.wait_for(job, "dead").last_error
    assert jobs.wait_for(jobs.enqueue("ok")).attempts == 1
    assert supervisor.is_alive()


def test_handlers_that_do_not_import_end_the_supervisor_with_the_reason(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """C11, D5: exit 70, the end of the traceback said once, no attempt touched, few lines."""
    job = jobs.enqueue("ok")
    supervisor = start_supervisor(handlers="handlers_for_tests,there_is_no_such_module", concurrency=4)
    assert supervisor.wait(10) == 70
    text = "\n".join(supervisor.lines())
    assert text.count("No module named 'there_is_no_such_module'") == 1
    assert len(supervisor.lines()) < 50
    assert jobs.get(job).attempts == 0


def test_a_segfault_at_import_ends_the_supervisor_after_five_starts(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """D5: exit 70, with what killed it."""
    supervisor = start_supervisor(handlers="segfaults_at_import", concurrency=1)
    assert supervisor.wait(20) == 70
    assert "SIGSEGV" in supervisor.tail(3)
    assert len([line for line in supervisor.logs() if line["event"] == "a worker has died"]) == 5
