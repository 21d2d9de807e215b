"""Jobs attack the supervisor: it lives, its duties go on, and the other slots do not notice."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from support.attacks import ATTACKS
from support.jobs import Jobs
from support.processes import Supervisor
from support.waiting import wait_until

SEED = int(os.environ.get("SEED", random.randrange(1 << 32)))
ROUNDS = int(os.environ.get("ROUNDS", "1"))
WORKERS = 6
LINES_AN_ATTACK = 60
CPU_AN_ATTACK = 1.0


@pytest.mark.timeout(60 + 40 * ROUNDS)
def test_nothing_that_a_job_does_harms_the_supervisor_or_another_slot(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, tmp_path: Path
) -> None:
    """C2, C7: attacks in random order, beside an innocent job whose lease is short. SEED= repeats them, ROUNDS= goes on.

    In a folder of their own, which they take away.
    """
    print(f"SEED={SEED}")
    chance = random.Random(SEED)
    supervisor = start_supervisor(
        command=("-m", "fencepost", "run"), inside=("sh", "-c", 'mkdir -p own && cd own && exec "$@"', "sh"),
        concurrency=WORKERS, handlers="attacks,handlers_for_tests", lease="6s", heartbeat="0.5s", max_runtime="2s",
        kill_grace="0.3s", max_attempts=1, sweep="0.3s",
    )  # fmt: skip
    supervisor.wait_for_workers(WORKERS)
    process = psutil.Process(supervisor.pid)
    limits = {limit: process.rlimit(limit) for limit in range(16)}
    innocent = jobs.enqueue("innocent", {"until": str(tmp_path / "all is over")}, max_runtime=600)
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

    (tmp_path / "all is over").touch()
    row = jobs.wait_for(innocent)
    assert (row.attempts, jobs.outcomes(innocent)) == (1, ["done"])
    supervisor.wait_for_workers(WORKERS)
    wait_until(lambda: {limit: process.rlimit(limit) for limit in range(16)} == limits, what="the limits as they were")
    assert not [line for line in supervisor.logs() if "a duty failed" in line.get("event", "")]
    assert len(supervisor.logs()) < LINES_AN_ATTACK * len(names)
    spent = process.cpu_times()
    assert spent.user + spent.system < 5 + CPU_AN_ATTACK * len(names)
    wait_until(lambda: process.num_fds() <= before + 1, what="as few descriptors as before")
    wait_until(lambda: not _zombies(supervisor.pid), what="no zombie")
    _stays_idle(process)


def test_a_worker_that_another_ones_job_signals_has_its_run_booked_as_it_ended(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """C14: killed by a stranger's hand, stopped until its max runtime is over, or only asked where it is."""
    supervisor = start_supervisor(concurrency=4, handlers="attacks,handlers_for_tests", kill_grace="0.3s", backoff="0s")
    sent = {signal.SIGUSR1: "done", signal.SIGSEGV: "crashed", signal.SIGSTOP: "overran"}
    limits = {signal.SIGSTOP: 2.5}
    victims = {
        number: jobs.enqueue("slow", {"seconds": 3}, max_runtime=limits.get(number, 60), max_attempts=1) for number in sent
    }
    for number, victim in victims.items():
        jobs.wait_for_mark(victim)
        jobs.wait_for(jobs.enqueue("signals_a_worker", {"pid": supervisor.wait_for_worker_of(victim), "number": number}))
    for number, victim in victims.items():
        jobs.wait_for(victim, ("done", "dead"))
        assert jobs.outcomes(victim) == [sent[number]], number
    (run,) = jobs.runs(victims[signal.SIGSEGV])
    assert (run.error["signal"], run.error.get("killed_by")) == ("SIGSEGV", None)
    assert supervisor.is_alive()


def _zombies(pid: int) -> list[str]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [child for child in children if psutil.Process(int(child)).status() == psutil.STATUS_ZOMBIE]


def _stays_idle(process: psutil.Process) -> None:
    """Assert that an idle second costs little."""
    assert process.cpu_percent(interval=1.0) < 30
