"""Being asked to stop.

The supervisor writes on the board which claim is to stop, and why, and sends SIGUSR2. The signal alone says nothing: it may
come late, when the worker is at its next job.

Invariant: a stop lands in the code of the job that it was meant for, and nowhere else.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # its `signal` makes no enum of what it replaces, at a tenth of the cost
import asyncio
import signal
from types import FrameType
from typing import Any

from fencepost.board import Board
from fencepost.job import Stopped, StopReason

SIGNAL = signal.SIGUSR2


class Stop:
    """Raises Stopped in the main thread while a job's code runs in it, or cancels the job's task."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._armed_for: int | None = None
        self._task: asyncio.Task[Any] | None = None
        self.raised: Stopped | None = None

    def install(self) -> None:
        """Take the signal. A job may have put its own handler there, so this is done before each."""
        _signal.signal(SIGNAL, self._on_signal)

    def arm(self, claim: int) -> None:
        """From here on the code is the job's. Raises at once if the claim was asked to stop before this."""
        self.raised = None
        self._armed_for = claim
        self._look()

    def arm_task(self, task: asyncio.Task[Any]) -> None:
        """Cancel `task` instead of raising, from here on: a coroutine is stopped where it waits."""
        self._task = task

    def disarm(self) -> None:
        """From here on the code is ours."""
        self._armed_for = None
        self._task = None

    def _on_signal(self, _signum: int, _frame: FrameType | None) -> None:
        self._look()

    def _look(self) -> None:
        claim, reason = self._board.orders.stop
        if reason is not None and claim == self._armed_for and self.raised is None:
            self._stop(reason)

    def _stop(self, reason: StopReason) -> None:
        # Kept, so that ours is known by identity and not by type: a job may raise a Stopped of its own.
        self.raised = Stopped(reason)
        if self._task is None:
            raise self.raised
        # The loop sleeps in the kernel: only this way of calling wakes it.
        self._task.get_loop().call_soon_threadsafe(self._task.cancel)
