"""Every statement fails in every way: `make statements`, SEED=1 for the same order, a few minutes. Prints a line a round.

One supervisor goes through all that can befall it while it works, some faults at a time, and stays as it was. Others, one after
the other, meet the faults of a start, and of a supervisor's last statement.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from signal import SIGTERM

import psutil
import pytest

from support.databases import Database
from support.faults import END, SETTINGS, SOONER, START, WAYS, Field, in_rounds, while_working
from support.jobs import Jobs
from support.processes import Supervisor
from support.proxy import CONNECT, Fault, Proxy
from support.waiting import wait_until

SEED = int(os.environ.get("SEED", random.randrange(1 << 32)))
AT_ONCE = int(os.environ.get("AT_ONCE", "6"))
ONLY = os.environ.get("ONLY", "")
ABANDONED_FOR = 12.0
"""Seconds after which nothing is left of a statement that was given up."""

pytestmark = pytest.mark.timeout(0)


@dataclass(frozen=True)
class Has:
    """What the supervisor has once it is idle; `cpu` is seconds of computing for each second since the last look."""

    descriptors: int
    threads: int
    megabytes: float
    cpu: float
    sessions: int


def test_a_supervisor_is_the_same_after_every_fault_of_every_statement(
    proxy: Proxy, start_supervisor: Callable[..., Supervisor], database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    supervisor = start_supervisor(proxy.url(database.worker_url), files=SOONER, **SETTINGS)
    supervisor.wait_for_workers(4)
    field = Field(supervisor, proxy, database)
    field.go_through([])
    rounds = in_rounds([fault for fault in while_working() if ONLY in str(fault)], random.Random(SEED), AT_ONCE)
    looks = [look(supervisor, database, 1000)]
    with capsys.disabled():
        print(f"\nSEED={SEED}: {sum(map(len, rounds))} faults in {len(rounds)} rounds")
        for number, faults in enumerate(rounds, 1):
            began = time.monotonic()
            print(f"{number:>4}", *faults, sep=" | ", end="", flush=True)
            field.go_through(faults)
            print(f" | {time.monotonic() - began:.1f} s", flush=True)
            if number % 10 == 0 or number == len(rounds):
                looks.append(look(supervisor, database, looks[0].descriptors))
                print(
                    "     "
                    + ", ".join(f"{one.name} {value}" for one, value in zip(fields(Has), astuple(looks[-1]), strict=True))
                )
    # The first ten warm up: caches fill, and the allocator takes what it keeps.
    first, last = looks[1], looks[-1]
    assert last.descriptors <= looks[0].descriptors + 1
    assert last.threads == 1
    assert last.megabytes <= first.megabytes * 1.05 + 1
    assert last.cpu < 0.3
    assert last.sessions <= 4 + 2 * 4
    assert not field.unknown()
    assert supervisor.is_alive()


def test_a_start_and_an_end_bear_every_fault(
    proxy: Proxy, start_supervisor: Callable[..., Supervisor], database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each way to fail, at each statement of a start in turn, and then at the last word of the same supervisor."""
    jobs = Jobs(database)
    for way in WAYS:
        faults = [proxy.arm(Fault(statement, "duty", **way)) for statement in (CONNECT, *START)]
        began = time.monotonic()
        supervisor = start_supervisor(proxy.url(database.worker_url), files=SOONER, **SETTINGS)
        supervisor.wait_for_workers(4, within=60)
        started = time.monotonic()
        assert [str(fault) for fault in faults if not fault.hit.is_set()] == []
        assert jobs.wait_for(jobs.enqueue("notes_once")).attempts == 1
        assert len(supervisor.lines()) < 40
        last = proxy.arm(Fault(END[0], "duty", **way))
        leaves = time.monotonic()
        supervisor.signal(SIGTERM)
        assert supervisor.wait(5) == 0, supervisor.tail()
        assert last.hit.is_set()
        with capsys.disabled():
            print(f"\n{faults[0]}: ready after {started - began:.1f} s, gone after {time.monotonic() - leaves:.1f} s", end="")


def look(supervisor: Supervisor, database: Database, descriptors: int = 0) -> Has:
    """Look at an idle supervisor, when what it has given up is gone."""
    process = psutil.Process(supervisor.pid)
    try:
        wait_until(lambda: process.num_fds() <= descriptors, within=ABANDONED_FOR)
    except AssertionError:
        pass  # told of with the rest
    return Has(
        process.num_fds(),
        process.num_threads(),
        round(process.memory_info().rss / 1024**2, 1),
        process.cpu_percent(interval=2.0) / 100,
        database.value("select count(*) from pg_stat_activity where application_name like 'fencepost %%'"),
    )
