"""Jobs attack the supervisor: it lives, its duties go on, and the other slots do not notice."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from support.attacks import ATTACKS
from support.databases import Database
from support.jobs import Jobs
from support.processes import Supervisor
from support.waiting import wait_until

SEED = int(os.environ.get("SEED", random.randrange(1 << 32)))
ROUNDS = int(os.environ.get("ROUNDS", "1"))
LINES_AN_ATTACK = 60
CPU_AN_ATTACK = 1.0


@pytest.mark.timeout(60 + 40 * ROUNDS)
def test_nothing_that_a_job_does_harms_the_supervisor_or_another_slot(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C2, C7: attacks in random order, beside an innocent job whose lease is short. SEED= repeats them, ROUNDS= goes on."""
    print(f"SEED={SEED}")
    chance = random.Random(SEED)
    supervisor = start_supervisor(
        concurrency=3, handlers="attacks,handlers_for_tests", lease="3s", heartbeat="0.5s", max_runtime="2s", kill_grace="0.3s",
        max_attempts=1, sweep="0.3s",
    )  # fmt: skip
    supervisor.wait_for_workers(3)
    process = psutil.Process(supervisor.pid)
    innocent = jobs.enqueue("slow", {"seconds": 12 * ROUNDS}, max_runtime=600)
    leased_until = wait_until(lambda: jobs[innocent].locked_until, what="the lease")
    jobs.wait_for(jobs.enqueue("kills_itself"), "dead")
    wait_until(lambda: jobs[innocent].locked_until > leased_until, what="a heartbeat")
    # All its connections are open by now.
    before = process.num_fds()

    names = [name for _ in range(ROUNDS) for name in chance.sample(sorted(ATTACKS), len(ATTACKS))]
    attacks = [jobs.enqueue("attacks", {"name": name, "seed": chance.randrange(1 << 32)}) for name in names]
    for name, attack in zip(names, attacks, strict=True):
        row = jobs.wait_for(attack, ("done", "dead"), within=20)
        assert row.attempts == 1, name
        assert supervisor.is_alive(), name
    fresh = jobs.enqueue("ok", priority=-1)
    assert jobs.wait_for(fresh, within=3).attempts == 1

    row = jobs.wait_for(innocent, within=14 * ROUNDS)
    assert (row.attempts, jobs.outcomes(innocent)) == (1, ["done"])
    supervisor.wait_for_workers(3)
    assert not [line for line in supervisor.logs() if "a duty failed" in line["event"]]
    assert len(supervisor.logs()) < LINES_AN_ATTACK * len(names)
    spent = process.cpu_times()
    assert spent.user + spent.system < 5 + CPU_AN_ATTACK * len(names)
    wait_until(lambda: process.num_fds() <= before + 1, what="as few descriptors as before")
    wait_until(lambda: not _zombies(supervisor.pid), what="no zombie")
    _stays_idle(process)


def _zombies(pid: int) -> list[str]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [child for child in children if psutil.Process(int(child)).status() == psutil.STATUS_ZOMBIE]


def _stays_idle(process: psutil.Process) -> None:
    """Assert that an idle second costs little."""
    assert process.cpu_percent(interval=1.0) < 30
