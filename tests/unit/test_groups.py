"""A signal for a worker's group goes to no other: a number may be of a group that is not the worker's, or be our own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from fencepost.supervisor.kill import send_group
from fencepost.supervisor.reap import _end_group
from fencepost.supervisor.state import Child


class Bystander:
    """A process that answers as long as nothing has ended it. It leads a group, or is in another's."""

    def __init__(self, group: int = 0) -> None:
        self._process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=group)
        self.pid = self._process.pid

    def lives(self) -> bool:
        """Whether it answers: what was sent to it before comes first."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(b"?\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return False
        return self._process.stdout.readline() == b"?\n"

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def bystander() -> Iterator[Callable[..., Bystander]]:
    """Start bystanders; all are ended with the test."""
    started: list[Bystander] = []

    def start(group: int = 0) -> Bystander:
        started.append(Bystander(group))
        return started[-1]

    yield start
    for one in started:
        one.end()


def wait_for_death(worker: Child) -> None:
    """Wait until it is dead; its number stays its own."""
    assert os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT) is not None


def test_a_workers_group_is_signalled_with_it(worker: Child, bystander: Callable[..., Bystander]) -> None:
    """Programs of its job end with it, those that came to be after the kill too."""
    first = bystander(group=worker.pid)
    send_group(worker, signal.SIGKILL)
    wait_for_death(worker)
    assert not first.lives()
    second = bystander(group=worker.pid)
    _end_group(worker)
    assert not second.lives()


def test_a_worker_in_another_group_is_signalled_alone(
    start_worker: Callable[..., Child], bystander: Callable[..., Bystander]
) -> None:
    """C5: in its first instant, or where its job has moved it: no group has its number, and where it is others are."""
    other = bystander()
    worker = start_worker(group=other.pid)
    send_group(worker, signal.SIGKILL)
    wait_for_death(worker)
    _end_group(worker)
    assert other.lives()


def test_our_own_group_is_never_signalled(
    worker: Child, bystander: Callable[..., Bystander], monkeypatch: pytest.MonkeyPatch
) -> None:
    """C5: though a worker leads it: it would be the supervisor's end, and that of whoever was started beside it."""
    beside = bystander(group=worker.pid)
    monkeypatch.setattr(os, "getpgrp", lambda: worker.pid)
    send_group(worker, signal.SIGKILL)
    wait_for_death(worker)
    _end_group(worker)
    assert beside.lives()
