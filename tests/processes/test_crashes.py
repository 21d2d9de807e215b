"""A job that kills its process costs one run of its own, and nobody else anything."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from support import nursery
from support.jobs import Jobs
from support.processes import Supervisor
from support.waiting import wait_until

DEATHS = [
    ("kills_itself", {}, "SIGKILL (signal 9)"),
    ("exits", {"code": 42}, "exit code 42"),
    ("segfault", {}, "SIGSEGV (signal 11)"),
]


def test_a_job_that_kills_its_process_runs_as_often_as_it_may_and_is_dead(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """D7, C01, C02, C16: exactly three runs, the cause in the list, five jobs behind them and one beside them undisturbed."""
    beside = jobs.enqueue("slow", {"seconds": 4})
    poisons = [(jobs.enqueue(kind, payload, max_attempts=3), cause) for kind, payload, cause in DEATHS]
    behind = [jobs.enqueue("ok") for _ in range(5)]
    supervisor = start_supervisor(backoff="0.1s")

    for poison, cause in poisons:
        dead = jobs.wait_for(poison, "dead", within=15)
        assert (dead.attempts, len(jobs.marks(poison))) == (3, 3), cause
        assert cause in dead.last_error
        assert jobs.outcomes(poison) == ["crashed"] * 3, cause
        assert all(cause in run.error["message"] for run in jobs.runs(poison))
    for job in [*behind, beside]:
        assert jobs.wait_for(job, "done").attempts == 1
        assert len(jobs.marks(job)) == 1
    assert supervisor.is_alive()
    supervisor.wait_for_workers(2, within=3)
    listed = json.loads(nursery.run(["list", "--json"], supervisor.folder, supervisor.environment).stdout)
    told = {job["id"]: job["last_error"] for job in listed["jobs"]}
    assert all(cause in told[poison] for poison, cause in poisons)


def test_a_slot_is_filled_again_half_a_second_after_its_worker_died(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """A1: death is seen within 0.1 s, and another worker is ready within 0.5 s."""
    supervisor = start_supervisor()
    first = supervisor.wait_for_workers(2)
    for victim in first:
        # One that dies at its first claim is not replaced at once: the next could do the same.
        wait_until(lambda: all(title.endswith("idle") for title in supervisor.titles(supervisor.workers())))
        killed_at = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda victim=victim: victim not in supervisor.workers(), within=0.3, what="the reaping")
        supervisor.wait_for_workers(2, within=0.5 - (time.monotonic() - killed_at) + 0.1)
    assert not set(first) & set(supervisor.workers())


def test_all_workers_killed_at_once_are_replaced(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """A2: the supervisor stays, and its new workers work."""
    supervisor = start_supervisor(concurrency=4)
    for worker in supervisor.wait_for_workers(4):
        os.kill(worker, signal.SIGKILL)
    job = jobs.enqueue("ok")
    assert jobs.wait_for(job).attempts == 1
    supervisor.wait_for_workers(4)


def test_a_worker_killed_from_outside_is_told_from_one_that_we_killed(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """A5, C16: one structured line tells slot, pid, job, how long it ran, signal and peak memory."""
    job = jobs.enqueue("slow", {"seconds": 30}, max_attempts=1)
    supervisor = start_supervisor()
    worker = supervisor.wait_for_worker_of(job)
    jobs.wait_for_mark(job)
    os.kill(worker, signal.SIGKILL)
    line = supervisor.wait_for_log(lambda line: line["event"] == "a worker has died" and line["pid"] == worker)
    assert line["job"] == job
    assert line["signal"] == "SIGKILL"
    assert line["killed_by_us"] is None
    assert line["max_rss"] > 1_000_000
    assert 0 < line["ran_for"] < 30
    assert "SIGKILL (signal 9)" in jobs.wait_for(job, "dead").last_error


RAISED_OR_RETURNED: list[tuple[str, dict[str, Any], str]] = [
    ("raises_system_exit", {"code": "text"}, "SystemExit: text"),
    ("raises_system_exit", {"code": None}, "SystemExit"),
    ("raises_system_exit", {"code": 256}, "SystemExit: 256"),
    ("raises_by_name", {"name": "KeyboardInterrupt"}, "KeyboardInterrupt"),
    ("raises_by_name", {"name": "GeneratorExit"}, "GeneratorExit"),
    ("raises_by_name", {"name": "MemoryError"}, "MemoryError"),
    ("raises_by_name", {"name": "StopIteration"}, "StopIteration"),
    ("allocates_more_than_it_may", {}, "MemoryError"),
    ("raises_cancelled", {}, "CancelledError"),
    ("raises_a_stop_of_its_own", {}, "Stopped"),
    ("recurses", {}, "RecursionError"),
    ("raises_what_cannot_be_told", {}, "Untellable"),
    ("raises_what_cannot_be_rebuilt", {}, "Unrebuildable: the message"),
    ("raises_much", {"characters": 50_000_000}, "ValueError: x"),
    ("raises_odd_text", {}, "bad\N{REPLACEMENT CHARACTER}byte"),
    ("returns_a_set", {}, "the result is a set"),
    ("returns_nul", {}, "NUL"),
    ("returns_much", {}, "bytes of JSON"),
    ("returns_a_generator", {}, "generator"),
]


def test_whatever_a_job_raises_or_returns_is_a_failed_run(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """C3, E1, E2, E3, E11, B3, C04, C15, C16, C73, C74, C76: twice, and dead; each booked within 2 s, bounded, with the class.

    One worker serves all of them.
    """
    supervisor = start_supervisor(concurrency=1, backoff="0s")
    workers = supervisor.wait_for_workers(1)
    enqueued = [(jobs.enqueue(kind, payload, max_attempts=2), error) for kind, payload, error in RAISED_OR_RETURNED]
    after = jobs.enqueue("ok")
    for job, error in enqueued:
        dead = jobs.wait_for(job, "dead", within=20)
        assert error in dead.last_error
        assert len(jobs.marks(job)) == 2, error
        assert jobs.outcomes(job) == ["failed"] * 2, error
        for run in jobs.runs(job):
            assert (run.finished_at - run.started_at).total_seconds() < 2, error
            assert len(str(run.error)) < 80_000
    assert jobs.wait_for(after).attempts == 1
    assert supervisor.workers() == workers


WAYS_TO_END_A_TRANSACTION = [
    "commits_by_hand",
    "commits_by_sql",
    "rolls_back_by_sql",
    "closes_its_connection",
    "leaves_a_transaction_open",
    "ends_its_backend",
    "swallows_its_own_commit",
    "aborts_its_transaction",
    "begins_another",
]


def test_a_job_that_ends_its_transaction_itself_has_failed_and_the_next_one_finds_a_new_session(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """C60: no success is booked that is not one, and what the job did to its connection is not the next one's trouble."""
    supervisor = start_supervisor(concurrency=1)
    enqueued = [(kind, jobs.enqueue(kind, max_attempts=1), jobs.enqueue("writes")) for kind in WAYS_TO_END_A_TRANSACTION]
    for kind, job, after in enqueued:
        jobs.wait_for(job, "dead", within=20)
        assert jobs.outcomes(job) == ["failed"], kind
        assert jobs.wait_for(after).attempts == 1, kind
        assert len(jobs.rows(after)) == 1, kind
    assert supervisor.is_alive()


def test_a_coroutine_has_the_same_transactions_as_a_function(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """Promise 3: fenced, tenant-local, and with transaction=True once: a run that failed has left nothing."""
    start_supervisor(concurrency=1, backoff="0s")
    job = jobs.enqueue("writes_async", tenant="acme")
    once = jobs.enqueue("writes_once_async", {"fail": True})
    bad = jobs.enqueue("commits_async", max_attempts=1)
    assert jobs.wait_for(job).result == "acme"
    assert len(jobs.rows(job)) == 1
    assert jobs.wait_for(once).attempts == 2
    assert [row.attempt for row in jobs.rows(once)] == [2]
    assert "ended its transaction" in jobs.wait_for(bad, "dead").last_error
    assert jobs.rows(bad) == []
    # What it enqueued exists, since its transaction was committed, and belongs to the same tenant.
    assert jobs.wait_for(bad + 1).tenant_id == "acme"


def test_a_connection_that_a_job_has_kept_refuses(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """Rule 4: it is dead with its transaction, although the session beneath it is the same."""
    start_supervisor(concurrency=1)
    job = jobs.enqueue("keeps_its_connection")
    assert "is over" in jobs.wait_for(job).result
    assert len(jobs.rows(job)) == 2


def test_what_a_job_leaves_in_its_process_costs_the_process_and_not_the_run(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """process C12, E8, F9: the outcome stands, and the next job finds a clean process, without the program of this one."""
    supervisor = start_supervisor(concurrency=1)
    kinds = ("leaves_a_thread", "leaves_a_program", "leaves_an_executor", "closes_descriptors", "forks_and_both_return")
    for kind in (*kinds, "loses_stdout"):
        (worker,) = supervisor.wait_for_workers(1)
        job = jobs.enqueue(kind)
        assert jobs.wait_for(job, "done", within=5).attempts == 1, kind
        assert len(jobs.marks(job)) >= 1, kind
        assert jobs.outcomes(job) == ["done"], kind
        if kind != "forks_and_both_return":
            wait_until(lambda worker=worker: worker not in supervisor.workers(), within=2, what=f"a new worker after {kind}")
        after = jobs.enqueue("ok")
        assert jobs.wait_for(after, within=5).attempts == 1, kind


def test_a_job_that_becomes_another_program_has_crashed(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """F10: an exit code of 0 is no outcome."""
    start_supervisor()
    job = jobs.enqueue("becomes_true", max_attempts=1)
    assert "exit code 0" in jobs.wait_for(job, "dead").last_error
    assert jobs.outcomes(job) == ["crashed"]
