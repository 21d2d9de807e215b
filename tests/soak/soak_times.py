"""How long it takes, from real accidents: `make times`, ROUNDS=9 of each. Prints medians and ranges.

Each moment is read where it happens: a death from the clock before the kill, what follows from the log's or the database's own
time, all on this machine.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from support.databases import Database
from support.jobs import Jobs
from support.networks import Machine
from support.processes import Supervisor
from support.servers import Server

ROUNDS = int(os.environ.get("ROUNDS", "9"))

AS_INSTALLED = ("-m", "fencepost", "run")
"""A worker that is forked where its code was loaded before is ready sooner."""

pytestmark = pytest.mark.timeout(0)


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[str, list[float]], None]]:
    """Print what was measured: median, least and most, in seconds."""

    def told(what: str, seconds: list[float]) -> None:
        with capsys.disabled():
            print(f"\n{what:<60} {statistics.median(seconds):7.3f}  ({min(seconds):.3f} to {max(seconds):.3f})", end="")

    return told


def at(line: dict[str, Any]) -> float:
    """Return when a log line was written, as time.time() counts."""
    return datetime.fromisoformat(line["time"]).timestamp()


def is_death_of(worker: int, line: dict[str, Any]) -> bool:
    return line["event"] == "a worker has died" and line["pid"] == worker


def is_ready_in(slot: str, after: float, line: dict[str, Any]) -> bool:
    return line["event"] == "a worker is ready" and str(line["slot"]) == slot and at(line) > after


def test_a_worker_dies(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, tell: Callable[[str, list[float]], None]
) -> None:
    """Killed in the middle of a job, while another one runs beside it."""
    supervisor = start_supervisor(command=AS_INSTALLED)
    supervisor.wait_for_workers(2)
    known, ready, booked = [], [], []
    for _ in range(ROUNDS):
        job = jobs.enqueue("slow", {"seconds": 60}, max_attempts=1)
        jobs.wait_for_mark(job)
        worker = supervisor.wait_for_worker_of(job)
        slot = supervisor.titles([worker])[0].split()[2]
        killed_at = time.time()
        os.kill(worker, signal.SIGKILL)
        known.append(at(supervisor.wait_for_log(partial(is_death_of, worker))) - killed_at)
        ready.append(at(supervisor.wait_for_log(partial(is_ready_in, slot, killed_at))) - killed_at)
        booked.append(jobs.wait_for(job, "dead").finished_at.timestamp() - killed_at)
    tell("a worker is killed: its death is known", known)
    tell("a worker is killed: its slot has a worker that is ready", ready)
    tell("a worker is killed: its run is on record", booked)


def test_a_supervisor_dies(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database, tell: Callable[[str, list[float]], None]
) -> None:
    """Killed by SIGKILL; another one on the same database takes its job over. Lease 6 s, heartbeat 1.5 s, its limit 1 s."""
    elsewhere = []
    other = start_supervisor(concurrency=1, command=AS_INSTALLED)
    other.wait_for_workers(1)
    for _ in range(ROUNDS):
        # It is busy while the job is claimed, so that it goes to the one that will die.
        keeps_busy = jobs.enqueue("slow", {"seconds": 3})
        jobs.wait_for_mark(keeps_busy)
        dies = start_supervisor(concurrency=1, command=AS_INSTALLED)
        job = jobs.enqueue("slow", {"seconds": 60})
        dies.wait_for_worker_of(job)
        jobs.wait_for_mark(job)
        jobs.wait_for(keeps_busy)
        killed_at = time.time()
        dies.signal(signal.SIGKILL)
        elsewhere.append(jobs.wait_for_mark(job, attempt=2, within=30).at.timestamp() - killed_at)
        database.value("select fencepost.cancel(%s)", [job])
        jobs.wait_for(job, "cancelled")
    tell("a supervisor is killed: its job runs elsewhere (lease 6 s)", elsewhere)


@pytest.mark.skipif(os.geteuid() != 0, reason="a machine of its own needs root")
def test_a_machine_is_cut_off(
    start_server: Callable[..., Server],
    create_database: Callable[[Server], Database],
    start_supervisor: Callable[..., Supervisor],
    tell: Callable[[str, list[float]], None],
) -> None:
    """Its cable is pulled in the middle of a job that has a transaction open. Lease 6 s, heartbeat 1.5 s, its limit 1 s."""
    database = create_database(start_server(listen_addresses="*"))
    jobs = Jobs(database)
    machine = Machine()
    try:
        url, elsewhere = machine.url(database), []
        other = start_supervisor(database.worker_url, concurrency=1, command=AS_INSTALLED)
        other.wait_for_workers(1)
        for _ in range(ROUNDS):
            # It claims nothing meanwhile, so that the job goes to the machine that will be cut off.
            other.signal(signal.SIGTSTP)
            away = start_supervisor(url, concurrency=1, command=AS_INSTALLED, inside=machine.inside)
            job = jobs.enqueue("writes_slowly", {"seconds": 60})
            jobs.wait_for_mark(job, note="between", within=30)
            other.signal(signal.SIGCONT)
            machine.cut("cable")
            cut_at = time.time()
            elsewhere.append(jobs.wait_for_mark(job, attempt=2, within=30).at.timestamp() - cut_at)
            database.value("select fencepost.cancel(%s)", [job])
            jobs.wait_for(job, "cancelled")
            away.kill_all()
            machine.heal("cable")
    finally:
        machine.remove()
    tell("a cable is pulled: its job runs elsewhere (lease 6 s)", elsewhere)


def test_a_server_comes_back(
    start_supervisor: Callable[..., Supervisor],
    own_server: Server,
    own_database: Database,
    tell: Callable[[str, list[float]], None],
) -> None:
    """Away for three seconds, with work waiting."""
    jobs = Jobs(own_database)
    supervisor = start_supervisor(own_database.worker_url, command=AS_INSTALLED)
    supervisor.wait_for_workers(2)
    claimed = []
    for _ in range(ROUNDS):
        due = jobs.enqueue("ok", after=3)
        own_database.close()
        own_server.stop()
        time.sleep(3)
        own_server.start()
        back_at = time.time()
        claimed.append(jobs.wait_for(due, within=30).started_at.timestamp() - back_at)
    tell("the server is back after 3 s: the first job is claimed", claimed)
