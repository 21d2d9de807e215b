"""A wake-up that comes while a worker is about to sleep."""

from __future__ import annotations

import pytest

from fencepost.board import Board, Orders, Phase, Record
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
    worker._line, worker._claims, worker._leaving = line, claims, False  # type: ignore[assignment]
    worker._session = line  # type: ignore[assignment]  # what a worker without work uses of both
    worker.work()
    assert (claims.number, line.slept) == (looks, 1)
    assert line.said[-2:] == [Phase.idle, Phase.leaving]


def test_a_worker_that_leaves_has_cleaned_its_session() -> None:
    """What a job has left in it, a lock say, is not there for as long as the process takes to end."""
    board = Board()
    board.order(drain=True)
    worker = Worker.__new__(Worker)
    line, claims = OneLine(board), NoJobs(board, woken=False, searched=True)
    worker._line, worker._claims, worker._leaving = line, claims, False  # type: ignore[assignment]
    worker._session = line  # type: ignore[assignment]  # what a worker without work uses of both
    worker.work()
    assert (claims.number, line.slept, line.cleaned) == (0, 0, True)
    assert line.said == [Phase.leaving]
