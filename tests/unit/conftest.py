"""Fixtures of the unit tests."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from fencepost.board import Board, Phase, Record, boottime
from fencepost.supervisor.state import Child


@pytest.fixture
def start_worker() -> Iterator[Callable[..., Child]]:
    """Start real processes, each in a group of its own or in `group`, whose records say that they are at their second claim."""
    with ExitStack() as ends:

        def start(group: int = 0) -> Child:
            process = subprocess.Popen(["sleep", "60"], process_group=group)
            ends.callback(process.wait)
            ends.callback(process.kill)
            ours, _ = (ends.enter_context(one) for one in socket.socketpair())
            note, stacks = os.memfd_create("note"), os.memfd_create("stacks")
            ends.callback(os.close, note)
            ends.callback(os.close, stacks)
            child = Child("w1", 1, process.pid, None, Board(), ours, note, stacks, memory=0, forked_at=boottime(), ready=True)
            child.board.write(Record(Phase.running, claim=2, job_id=8, claimed_at=boottime(), max_runtime=60))
            return child

        yield start


@pytest.fixture
def worker(start_worker: Callable[..., Child]) -> Child:
    """A real process in a group of its own, whose record says that it is at its second claim."""
    return start_worker()
