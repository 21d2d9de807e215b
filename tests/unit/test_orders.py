"""Orders to stop reach the child that they were meant for."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Iterator

import pytest

from fencepost.board import Board, Orders, Phase, Record, boottime
from fencepost.jobs.heartbeat import Answer
from fencepost.settings import read
from fencepost.supervisor.database import Link
from fencepost.supervisor.heartbeat import _take
from fencepost.supervisor.kill import kill_run, stop_run
from fencepost.supervisor.state import Child, Kill, Slot, State


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that must not be signalled."""
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def a_child(pid: int) -> Child:
    ours, theirs = socket.socketpair()
    theirs.close()
    files = os.memfd_create("note"), os.memfd_create("stacks")
    child = Child("w1", 1, pid, None, Board(), ours, *files, memory=0, forked_at=boottime(), ready=True)
    child.board.write(Record(Phase.running, claim=1, job_id=7, claimed_at=boottime(), max_runtime=60))
    return child


@pytest.mark.parametrize("order", ["stop", "kill", "cancelled by the heartbeat's answer"])
def test_an_order_for_a_dead_child_does_not_reach_the_next_one_in_its_slot(
    bystander: subprocess.Popen[bytes], order: str
) -> None:
    """B13: claims are numbered from 1 in each worker, so the order would be true of the next one's claim too."""

    async def act() -> Orders:
        settings = read()
        link = Link(settings, "duty", "s1", 5.0)
        state = State(settings, "s1", [Slot(1)], link, link, link)
        dead, alive = a_child(bystander.pid), a_child(bystander.pid)
        state.slots[0].child = alive
        dead.close()
        match order:
            case "stop":
                await stop_run(state, dead, 1, "cancel")
            case "kill":
                await kill_run(dead, Kill("lease", 1))
            case _:
                _take(state, dead, 1, Answer("renewed", cancel_requested=True), boottime())
                await asyncio.sleep(0)
        said = alive.board.orders
        alive.close()
        return said

    assert asyncio.run(act()).stop == (0, None)
    assert bystander.poll() is None
    assert signal.SIGUSR2 not in signal.sigpending()
