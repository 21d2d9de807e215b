"""How often a supervisor looks at its workers' deadlines."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fencepost.board import Board, Phase, Record, boottime
from fencepost.settings import read
from fencepost.supervisor.state import Child, Kill, Slot, State
from fencepost.supervisor.wake import wake
from fencepost.supervisor.watch import ABOUT_TO_CLAIM, BETWEEN_TICKS, WHILE_ALL_SLEEP, period


@pytest.fixture
def state() -> Iterator[State]:
    """Two workers that sleep, and have for a while."""
    nothing: Any = None
    ours, theirs = socket.socketpair()
    slots = [Slot(n, Child(f"w{n}", n, 0, None, Board(), ours, 0, 0, 0, 0.0, ready=True)) for n in (1, 2)]
    for slot in slots:
        assert slot.child is not None
        slot.child.board.write(Record(Phase.idle))
    with ours, theirs:
        yield State(read(), "s1", slots, duty=nothing, bookings_link=nothing, beats=nothing)


def says(record: Record) -> Callable[[State, Child], None]:
    """Return what has a worker say this of itself."""
    return lambda _, child: child.board.write(record)


def is_gone(state: State, child: Child) -> None:
    """Leave an empty slot, that is to be filled at its time."""
    state.slots[child.slot - 1].child = None


REASONS: dict[str, Callable[[State, Child], None]] = {
    "it claims": says(Record(Phase.claiming, claim=1)),
    "it runs a job": says(Record(Phase.running, claim=1)),
    "it finishes one": says(Record(Phase.finishing, claim=1)),
    "it leaves": says(Record(Phase.leaving)),
    "its record can't be read": lambda _, child: setattr(child.board, "read", lambda: None),
    "it was woken": lambda _, child: setattr(child, "woken_at", boottime() - ABOUT_TO_CLAIM + 0.5),
    "it starts": lambda _, child: setattr(child, "ready", False),
    "it is to leave": lambda _, child: setattr(child, "leaving", True),
    "it dies": lambda _, child: setattr(child, "kill", Kill("lease", 1)),
    "its slot is empty": is_gone,
    "what a job has left is not gone": lambda state, _: state.strays.add(1),
    "a drain": lambda state, _: setattr(state, "drain_step", 1),
}


@pytest.mark.parametrize("reason", REASONS)
def test_whoever_has_a_deadline_is_looked_at_often(state: State, reason: str) -> None:
    """One of two is enough."""
    assert period(state) == WHILE_ALL_SLEEP
    child = state.slots[1].child
    assert child is not None
    REASONS[reason](state, child)
    assert period(state) == state.settings.check_period < WHILE_ALL_SLEEP


def test_a_run_is_looked_at_when_it_comes_to_its_max_runtime(state: State) -> None:
    """Not a tick later; and once it is past that, no more often than others."""
    runs = state.slots[0].child
    assert runs is not None
    usual = state.settings.check_period
    for ahead, within in ((60.0, usual), (0.02, 0.02), (0.005, BETWEEN_TICKS), (-0.02, usual)):
        runs.board.write(Record(Phase.running, claim=1, claimed_at=boottime() - 1.0, max_runtime=1.0 + ahead))
        assert 0.75 * within <= period(state) <= within


@pytest.mark.parametrize("lease", ["2s", "10m"])
def test_a_claim_that_nobody_has_asked_for_is_seen_before_its_lease_is_half_over(
    state: State, monkeypatch: pytest.MonkeyPatch, lease: str
) -> None:
    """A worker may be stopped by someone as it is woken, and claim when that is long ago."""
    monkeypatch.setenv("FENCEPOST_LEASE", lease)
    monkeypatch.setenv("FENCEPOST_HEARTBEAT", "0.3s")
    state.settings = read()
    assert period(state) <= state.settings.holds_for / 2


@pytest.mark.parametrize("far", [True, False])
def test_whoever_wakes_a_worker_brings_the_next_tick_near(state: State, *, far: bool) -> None:
    """Only where that is far: a thousand notifications a second are no reason for as many ticks."""
    state.all_sleep = far
    wake(state, 1)
    assert state.changed.is_set() is far
    assert period(state) == state.settings.check_period
