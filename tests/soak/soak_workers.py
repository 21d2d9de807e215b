"""Thousands of workers come and go, and the supervisor stays as it was: `make soak`, DEATHS=10000 of them.

Every worker runs one job and leaves; every tenth job kills its process instead. Prints what the supervisor has after each
tenth of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import psutil
import pytest

from support.databases import Database
from support.processes import Supervisor
from support.waiting import wait_until

DEATHS = int(os.environ.get("DEATHS", "10000"))
PARTS = 10
ENQUEUE = """
select count(fencepost.enqueue(case when n %% 10 = 0 then 'kills_itself' else 'quick' end, tenant => '1', max_attempts => 1))
from generate_series(1, %s) n
"""
AT_REST = "select count(*) from fencepost.jobs where status in ('done', 'dead')"


@dataclass(frozen=True)
class Has:
    """What the supervisor has, after so many deaths; `cpu` is seconds for each thousand since the last look."""

    deaths: int
    descriptors: int
    threads: int
    mappings: int
    megabytes: float
    cpu: float
    sessions: int


@pytest.mark.timeout(0)
def test_a_supervisor_is_the_same_after_thousands_of_workers(
    start_supervisor: Callable[..., Supervisor], database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """C7: descriptors, memory and CPU are flat, and nothing is left behind."""
    supervisor = start_supervisor(concurrency=4, max_jobs_per_worker=1, preload="yes", log_level="warning")
    supervisor.wait_for_workers(4)
    part = DEATHS // PARTS
    seen = [look(supervisor, database, 0, part)]
    with capsys.disabled():
        print("\n" + "".join(f"{field.name:>14}" for field in fields(Has)))
        for number in range(1, PARTS + 1):
            database.execute(ENQUEUE, [part])
            wait_until(lambda wanted=number * part: database.value(AT_REST) == wanted, within=part, what=f"part {number}")
            supervisor.wait_for_workers(4)
            seen.append(look(supervisor, database, number * part, part, seen))
            print("".join(f"{value:>14}" for value in astuple(seen[-1])))
    # The first part warms up: caches fill, and the allocator takes what it keeps.
    first, last = seen[1], seen[-1]
    assert last.descriptors <= first.descriptors + 2
    assert last.threads == first.threads == 1
    assert last.mappings <= first.mappings + 10
    assert last.megabytes <= first.megabytes * 1.05 + 1
    costs = sorted(has.cpu for has in seen[1:])
    assert sorted(has.cpu for has in seen[-3:])[1] <= costs[len(costs) // 2] * 1.5
    assert last.sessions <= 4 + 2 * 4
    assert database.value("select count(*) from fencepost.job_runs where outcome = 'crashed'") == DEATHS // 10
    assert supervisor.is_alive()


def look(supervisor: Supervisor, database: Database, deaths: int, part: int, before: list[Has] | None = None) -> Has:
    process = psutil.Process(supervisor.pid)
    times = process.cpu_times()
    spent = times.user + times.system
    already = sum(has.cpu for has in before or []) * part / 1000
    return Has(
        deaths,
        process.num_fds(),
        process.num_threads(),
        len(Path(f"/proc/{supervisor.pid}/maps").read_text().splitlines()),
        round(process.memory_info().rss / 1024**2, 1),
        round((spent - already) * 1000 / part, 3),
        database.value("select count(*) from pg_stat_activity where application_name like 'fencepost %%'"),
    )
