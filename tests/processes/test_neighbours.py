"""What one job leaves, and what stands around the supervisor, is nobody else's trouble."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import pytest

from support.databases import Database
from support.jobs import Jobs
from support.processes import Supervisor, is_running
from support.waiting import wait_until

PYTHON = sys.executable


def test_the_whole_family_of_a_dead_run_is_gone_before_the_job_runs_again(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C4: a stray's own child comes to us only once the stray is reaped; it must not live beside the next run."""
    start_supervisor(backoff="0s")
    job = jobs.enqueue("dies_with_a_family", max_attempts=3)
    jobs.wait_for(job, "dead")
    told = database.execute("select note from test.marks where note like 'living:%%' order by id")
    assert [row.note for row in told] == ["living: []"] * 3


def test_a_run_whose_main_thread_has_left_is_killed_like_any_other(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """C1: it looks dead to /proc, and lives on in its other threads."""
    start_supervisor(concurrency=1)
    job = jobs.enqueue("leaves_its_main_thread", max_runtime=1, max_attempts=1)
    jobs.wait_for(job, "dead", within=6)
    assert jobs.outcomes(job) == ["overran"]
    assert jobs.wait_for(jobs.enqueue("ok")).attempts == 1


def test_a_stopped_idle_worker_does_not_swallow_the_wake_ups_of_the_others(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """Woken first, it does not wake; the next wake-up goes to another."""
    supervisor = start_supervisor(concurrency=2, poll="0.3s")
    workers = supervisor.wait_for_workers(2)
    jobs.wait_for(jobs.enqueue("ok"))
    # One that is stopped while it claims holds what it has claimed, until its lease is over.
    wait_until(lambda: supervisor.titles(workers) == ["fencepost: worker 1 idle", "fencepost: worker 2 idle"])
    os.kill(workers[0], signal.SIGSTOP)
    for _ in range(3):
        assert jobs.wait_for(jobs.enqueue("ok"), within=3).attempts == 1
    os.kill(workers[0], signal.SIGCONT)


def test_timers_and_signals_of_a_job_end_with_it(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """Neither the next job nor our own code meets the alarm of this one."""
    supervisor = start_supervisor(concurrency=1)
    for kind in ("leaves_an_alarm", "blocks_signals_and_returns"):
        job = jobs.enqueue(kind)
        after = jobs.enqueue("slow", {"seconds": 0.8})
        assert jobs.wait_for(job).attempts == 1, kind
        assert jobs.wait_for(after).attempts == 1, kind
    assert not [line for line in supervisor.logs() if line["event"] in ("the worker failed", "a worker has died")]


def test_a_coroutine_that_uses_threads_and_waits_for_them_leaves_nothing(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """An executor's idle thread is no leftover: the worker stays."""
    start_supervisor(concurrency=1)
    enqueued = [jobs.enqueue("uses_a_thread") for _ in range(5)]
    assert len({jobs.wait_for(job).result for job in enqueued}) == 1


def test_a_program_started_at_import_is_not_the_jobs(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """It was there before the job; the worker stays."""
    start_supervisor(concurrency=1, handlers="starts_a_program_at_import,handlers_for_tests,handlers_of_accidents")
    enqueued = [jobs.enqueue("tells_its_process") for _ in range(5)]
    assert len({jobs.wait_for(job).result for job in enqueued}) == 1


def test_a_program_that_the_supervisor_was_born_with_is_left_alone(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell that became the supervisor had started it: it is no job's, also when a worker dies."""
    monkeypatch.setattr("sys.executable", "/bin/sh")
    supervisor = start_supervisor(
        command=("-c", f'sleep 300 & echo $! > sidecar; exec "{PYTHON}" -m fencepost run'), concurrency=1
    )
    jobs.wait_for(jobs.enqueue("exits", {"code": 1}, max_attempts=1), "dead")
    supervisor.wait_for_workers(1)
    sidecar = int((supervisor.folder / "sidecar").read_text())
    assert is_running(sidecar)
    os.kill(sidecar, signal.SIGKILL)


def test_too_few_descriptors_cost_slots_and_not_the_supervisor(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D9: what can be had works; what can't is tried again later each time, in a handful of lines."""
    monkeypatch.setattr("sys.executable", "/bin/sh")
    supervisor = start_supervisor(command=("-c", f'ulimit -n 60; exec "{PYTHON}" -m fencepost run'), concurrency=20)
    supervisor.wait_for_log("no process or no descriptors for a worker")
    assert jobs.wait_for(jobs.enqueue("ok")).attempts == 1
    assert "(ulimit -Hn): raise that or lower FENCEPOST_CONCURRENCY" in supervisor.stderr.read_text()
    assert len(supervisor.lines()) < 200
    assert not [line for line in supervisor.logs() if line["event"] == "a duty failed"]


def test_a_log_that_nobody_reads_does_not_hold_up_the_supervisor(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E6: its stderr is a pipe that is full; jobs run, leases are kept, and it drains."""
    monkeypatch.setattr("sys.executable", "/bin/sh")
    into_a_pipe = f'mkfifo pipe; sleep 300 < pipe & echo $! > reader; exec "{PYTHON}" -m fencepost run 2> pipe'
    supervisor = start_supervisor(command=("-c", into_a_pipe), lease="3s", heartbeat="0.6s")
    for job in [jobs.enqueue("quick") for _ in range(400)]:
        jobs.wait_for(job, within=20)
    job = jobs.enqueue("slow", {"seconds": 4})
    assert jobs.wait_for(job).attempts == 1
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait(6) == 0
    os.kill(int((supervisor.folder / "reader").read_text()), signal.SIGKILL)


def test_a_locked_row_holds_up_its_own_booking_only(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """Rule 16: the booking waits for the row; other jobs start as ever, and it is booked once the row is free."""
    supervisor = start_supervisor(concurrency=2)
    job = jobs.enqueue("slow", {"seconds": 60}, max_attempts=1)
    jobs.wait_for_mark(job)
    with database.conn(autocommit=False) as conn:
        conn.execute("select from fencepost.jobs where id = %s for update", [job])
        os.kill(supervisor.wait_for_worker_of(job), signal.SIGKILL)
        supervisor.wait_for_log("a worker has died")
        for _ in range(4):
            assert jobs.wait_for(jobs.enqueue("ok"), within=2).attempts == 1
        assert jobs.get(job).status == "running"
    assert "SIGKILL" in jobs.wait_for(job, "dead", within=6).last_error


def test_a_month_of_max_runtime_is_more_than_the_server_can_time(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """Its settings end at 24.8 days: a transaction of such a job begins all the same."""
    start_supervisor()
    job = jobs.enqueue("writes", max_runtime=30 * 86400)
    jobs.wait_for(job)
    assert len(jobs.rows(job)) == 1


def test_a_scheduled_job_starts_when_it_is_due(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """Not at the next poll: the supervisor sleeps until then."""
    supervisor = start_supervisor(concurrency=1, poll="30s")
    supervisor.wait_for_workers(1)
    # Once it listens, and has nothing else to do.
    jobs.wait_for(jobs.enqueue("ok"))
    job = jobs.enqueue("ok", after=2)
    row = jobs.wait_for(job, within=5)
    assert (row.started_at - row.run_at).total_seconds() < 0.5
    wait_until(supervisor.is_alive)


def test_a_disk_without_room_costs_log_lines_and_nothing_else(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C11: no place for logs nor for temporary files: workers are held to their deadlines and replaced, leases are kept."""
    monkeypatch.setattr("sys.executable", "/bin/sh")
    supervisor = start_supervisor(
        command=("-c", f'exec "{PYTHON}" -m fencepost run >/dev/full 2>/dev/full'),
        environment={"TMPDIR": "/nowhere"},
        lease="3s",
        heartbeat="0.6s",
        kill_grace="0.3s",
        concurrency=2,
    )
    workers = supervisor.wait_for_workers(2)
    hung = jobs.enqueue("swallows_everything", max_runtime=0.5, max_attempts=1)
    slow = jobs.enqueue("slow", {"seconds": 4})
    jobs.wait_for(hung, "dead", within=4)
    assert jobs.outcomes(hung) == ["overran"]
    assert jobs.wait_for(slow).attempts == 1
    assert len(set(workers) & set(supervisor.wait_for_workers(2))) == 1
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait(6) == 0


EACH_DUTY_FAILS_TWICE = """
import functools, sys
from fencepost.supervisor import main

def failing_twice(duty):
    left = [2]
    @functools.wraps(duty)
    def act(*arguments):
        if left[0]:
            left[0] -= 1
            raise ValueError(f"on purpose: {duty.__name__}")
        return duty(*arguments)
    return act

for name in ("reap", "watch", "fill_slots", "beat", "sweep_expired", "poll", "listen", "keep_row", "replace_workers"):
    setattr(main, name, failing_twice(getattr(main, name)))
sys.argv = ["fencepost", "run"]
from fencepost.cli import main as cli
cli()
"""


def test_an_error_in_any_duty_is_logged_and_the_duty_goes_on(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """E7: twice in each; then workers are there and replaced, leases kept, what is due is found, and a HUP is obeyed."""
    supervisor = start_supervisor(command=("-c", EACH_DUTY_FAILS_TWICE), concurrency=1, lease="4s", heartbeat="0.8s")
    (worker,) = supervisor.wait_for_workers(1)
    for duty in ("beat", "sweep_expired", "poll", "listen", "keep_row", "replace_workers"):
        supervisor.wait_for_log(lambda line, duty=duty: line.get("duty") == duty and "on purpose" in line["error"])
    for duty in ("reap", "watch", "fill_slots"):
        supervisor.wait_for_log(lambda line, duty=duty: line["event"] == "a duty failed" and duty in line["error"])
    wait_until(lambda: database.value("select count(*) from fencepost.supervisors") == 1, what="the supervisor's row")
    assert jobs.wait_for(jobs.enqueue("slow", {"seconds": 5})).attempts == 1
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: worker not in supervisor.workers(), what="the reaping")
    supervisor.wait_for_workers(1)
    supervisor.signal(signal.SIGHUP)
    supervisor.wait_for_log("all workers are replaced")
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait(6) == 0
