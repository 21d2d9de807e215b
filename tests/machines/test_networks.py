"""A machine that vanishes from the network, and comes back."""

from __future__ import annotations

import time
from collections.abc import Callable
from signal import SIGTERM

import pytest

from support.databases import Database
from support.jobs import Jobs
from support.networks import Machine
from support.processes import Supervisor, is_running
from support.servers import Server
from support.waiting import wait_until

RUN = ("-m", "fencepost", "run")
HANDLERS = "handlers_for_tests,handlers_of_sessions"

LEASE, TAKEN_OVER = 6.0, 6.0 + 1.5 + 1.5 + 0.5
"""Seconds: lease, heartbeat, its limit, sweep."""

KEPT_ALIVE = 5.0 + 3 * 1.0
"""Seconds in which the server sees that a client is gone: after so long without a packet it asks, three times."""


@pytest.mark.parametrize("accident", ["cable", "silence", "answers lost"])
def test_the_job_of_a_machine_that_vanishes_is_run_elsewhere_and_the_machine_comes_back(
    accident: str,
    machine: Machine,
    start_server: Callable[..., Server],
    create_database: Callable[[Server], Database],
    start_supervisor: Callable[..., Supervisor],
) -> None:
    """C31: stopped there before the lease ends, then run elsewhere in time, whatever it had locked; and all is well after."""
    database = create_database(start_server(listen_addresses="*"))
    jobs = Jobs(database)
    away = start_supervisor(machine.url(database), handlers=HANDLERS, command=RUN, inside=machine.inside, concurrency=1)
    job = jobs.enqueue("holds_a_lock_at_first")
    jobs.wait_for_mark(job, note="locked", within=15)
    worker = away.wait_for_worker_of(job)
    elsewhere = start_supervisor(database.worker_url, handlers=HANDLERS, concurrency=1)
    elsewhere.wait_for_workers(1)

    machine.cut(accident)
    cut_at = time.monotonic()
    wait_until(lambda: not is_running(worker), within=LEASE, what="the end of the run that was cut off")
    assert jobs[job].attempts == 1
    done = jobs.wait_for(job, within=cut_at + TAKEN_OVER + 3 - time.monotonic())
    assert done.attempts == 2
    print(f"{accident}: elsewhere after {time.monotonic() - cut_at:.1f} s")
    assert [row.attempt for row in jobs.rows(job)] == [2]
    assert away.is_alive()

    machine.heal(accident)
    # It works again, and what it may have booked late has changed nothing.
    elsewhere.signal(SIGTERM)
    assert elsewhere.wait() == 0
    assert jobs.wait_for(jobs.enqueue("ok"), within=10).attempts == 1
    assert jobs.outcomes(job) == ["lost", "done"]
    assert [mark.attempt for mark in jobs.marks(job)] == [1, 2]
    gone = "select count(*) from pg_stat_activity where client_addr = %s and xact_start is not null"
    wait_until(lambda: database.value(gone, [machine.address]) == 0, what="the end of the transactions from there")


def test_the_sessions_of_a_machine_before_its_restart_do_not_hold_up_those_after_it(
    machine: Machine,
    start_server: Callable[..., Server],
    create_database: Callable[[Server], Database],
    start_supervisor: Callable[..., Supervisor],
) -> None:
    """Half-open connections: the server believes that the machine still has its transaction, and all that it locks."""
    database = create_database(start_server(listen_addresses="*"))
    jobs = Jobs(database)
    url = machine.url(database)
    settings = {"handlers": HANDLERS, "command": RUN, "inside": machine.inside, "concurrency": 1}
    before = start_supervisor(url, lease="3s", heartbeat="0.7s", **settings)
    job = jobs.enqueue("holds_a_lock_at_first")
    jobs.wait_for_mark(job, note="locked", within=15)
    # No packet tells the server of the end.
    machine.cut("silence")
    before.kill_all()
    restarted_at = time.monotonic()
    machine.restart()
    held = "select count(*) from pg_stat_activity where client_addr = %s and xact_start is not null"
    assert database.value(held, [machine.address]) == 1

    after = start_supervisor(url, lease="3s", heartbeat="0.7s", **settings)
    assert jobs.wait_for(job, within=KEPT_ALIVE + 5).attempts == 2
    print(f"run again after {time.monotonic() - restarted_at:.1f} s")
    assert jobs.outcomes(job) == ["lost", "done"]
    assert [row.attempt for row in jobs.rows(job)] == [2]
    assert database.value("select count(*) from pg_locks where locktype = 'advisory'") == 0
    assert after.is_alive()
