"""In which order a worker acts: around a wake-up that comes while it is about to sleep, and what it owes to others before."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import psycopg
import pytest

from fencepost.board import Board, Orders, Phase, Record
from fencepost.worker.claim import Claims
from fencepost.worker.loop import Worker


class OneLine:
    """The worker's end of the line, that tells whether the worker has slept; and its session, whether that was clean then."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self.slept = 0
        self.cleaned = False
        self.said: list[Phase] = []

    @property
    def orders(self) -> Orders:
        return self._board.orders

    def say(self, record: Record) -> None:
        self.said.append(record.phase)

    def clean_what_is_owed(self) -> None:
        self.cleaned = True

    def sleep(self, _seconds: float | None) -> None:
        assert self.cleaned, "what a job has left is there for as long as this one sleeps"
        self.slept += 1
        self._board.order(drain=True)


class NoJobs:
    """Claims that find nothing; a wake-up comes while the first one looks."""

    unresolved = False
    number = 0

    def __init__(self, board: Board, *, woken: bool, searched: bool) -> None:
        self._board = board
        self._woken = woken
        self.searched = searched

    def next(self) -> None:
        self.number += 1
        if self.number == 1 and self._woken:
            self._board.wake()
        if self.number == 2:
            self.searched = True

    def until_next_look(self) -> None:
        return None


@pytest.mark.parametrize(
    ("woken", "searched", "looks"),
    [(False, True, 1), (True, True, 2), (False, False, 2)],
    ids=["no wake-up", "a wake-up while it looked", "it could not look"],
)
def test_a_worker_looks_again_before_it_sleeps_over_a_wake_up(*, woken: bool, searched: bool, looks: int) -> None:
    """Rule 23: the count is compared around each look, and what could not be looked for is no reason to sleep."""
    board = Board()
    worker = Worker.__new__(Worker)
    line, claims = OneLine(board), NoJobs(board, woken=woken, searched=searched)
    for name, double in (("_line", line), ("_claims", claims), ("_session", line)):
        setattr(worker, name, double)
    worker._leaving = False
    worker.work()
    assert (claims.number, line.slept) == (looks, 1)
    assert line.said[-2:] == [Phase.idle, Phase.leaving]


class Acts:
    """Whatever a worker needs, and in which order it was used."""

    orders = Orders()
    unresolved = False
    searched = True
    number = 1

    def __init__(self, finds: SimpleNamespace | None = None) -> None:
        self.acts: list[str] = []
        self._finds = finds

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: self.acts.append(name)

    def next(self) -> SimpleNamespace | None:
        return self._finds

    def came_too_late(self) -> bool:
        return False


@pytest.mark.parametrize("what", ["leaves", "waits", "runs"])
def test_what_is_owed_is_cleaned_before_a_worker_leaves_waits_or_runs_what_begins_no_transaction(what: str) -> None:
    """What a job has left in its session, a lock say, is not there for others for as long as that takes."""
    acts = Acts(SimpleNamespace(kind="ok"))
    worker, claims = Worker.__new__(Worker), Claims.__new__(Claims)
    for name in ("_line", "_claims", "_session"):
        setattr(worker, name, acts)
    for name in ("_line", "_session", "_patience"):
        setattr(claims, name, acts)
    worker._leaving = what == "leaves"
    match what:
        case "leaves":
            worker.work()
            assert acts.acts == ["clean_what_is_owed", "say"]
        case "waits":
            claims._sent = True
            claims._after(psycopg.errors.SyntaxError())
            assert acts.acts == ["clean_what_is_owed", "drop_claims", "pause"]
        case "runs":

            def run(_: SimpleNamespace) -> None:
                acts.acts.append("run")
                worker._leaving = True

            worker._run = run  # type: ignore[assignment,method-assign]  # notes that it was called, and runs nothing
            worker.work()
            assert acts.acts[:2] == ["next_is", "run"]
