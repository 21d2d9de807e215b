"""Being told to stop, and waiting.

Invariant: a signal is only noted. What it ends is the wait that comes next, never a step between taking something and
writing down that it has to be given back, and never the giving back itself.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Self, TypeVar

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STEP = 0.03
"""Seconds between two looks."""


class Interrupted(Exception):
    """The demo was told to stop."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


class Trouble(Exception):
    """The demo can't go on: its text is the line that says why."""


class Stop:
    """Notes signals while it is entered, but for a hangup that was ignored before (nohup)."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS:
            before = signal.getsignal(number)
            if number != signal.SIGHUP or before is not signal.SIG_IGN:
                self._before[number] = before
                signal.signal(number, self._note)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]  # what getsignal has returned

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._number = self._number or number

    def look(self) -> None:
        """Raise Interrupted if the demo was told to stop."""
        if self._number is not None:
            raise Interrupted(self._number)

    def sleep(self, seconds: float) -> None:
        """Sleep, unless told to stop."""
        until = time.monotonic() + seconds
        self.look()
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, STEP))
            self.look()

    def until(self, condition: Callable[[], T | None], within: float, what: str) -> T:
        """Return what `condition` returns once that is true. Raises Trouble if that takes more than `within` s."""
        until = time.monotonic() + within
        while not (value := condition()):
            if time.monotonic() > until:
                raise Trouble(f"{what} has not come about within {within:g} s")
            self.sleep(STEP)
        return value
