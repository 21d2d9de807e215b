"""What connects a worker to its supervisor: its record on the board, its title, and the line that wakes it.

Invariant: what the board says is written before what it speaks of is done. "Claiming, number n" stands there before the claim
is sent, "finishing" before the finish is: the supervisor kills by what it reads there.
"""

from __future__ import annotations

import os
import select
import socket
import time

from setproctitle import setproctitle

from fencepost.board import BUSY, Orders, Phase, Record, boottime
from fencepost.start import WorkerStart

LOOK = int(socket.MSG_PEEK | socket.MSG_DONTWAIT)
"""As a number: put together each time, it takes longer than the call."""


class Line:
    """The worker's end of it. `lost` is set where a job has taken descriptors away: the line may be something else by now."""

    def __init__(self, start: WorkerStart) -> None:
        self._board = start.board
        self._slot = start.slot
        self._socket = start.line
        self._record = Record(Phase.booting)
        self._title = ""
        self.descriptors = (0, 1, 2, start.line.fileno(), start.note, start.stacks)
        self.lost = False

    @property
    def orders(self) -> Orders:
        """What the supervisor says. It is said before the line tells that there is something to read."""
        return self._board.orders

    def say(self, record: Record) -> None:
        """Replace the record, and the title that tells people the same."""
        self._record = record
        self._board.write(record)
        if (title := _title(record)) != self._title:
            self._title = title
            setproctitle(f"fencepost: worker {self._slot} {title}")

    def say_still_claiming(self) -> None:
        """Give a sign of life: the supervisor ends a worker whose claim is not answered."""
        self.say(self._record._replace(claimed_at=boottime()))

    def report(self, done: float, total: float | None) -> None:
        """Say how far the run is."""
        self._record = self._record._replace(progress=(float(done), float("nan" if total is None else total)))
        self._board.write(self._record)

    def has_ended(self) -> bool:
        """Whether nothing can come down any more: the supervisor is gone, or a job has shut it down."""
        try:
            return not self._socket.recv(1, LOOK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def sleep(self, seconds: float | None) -> None:
        """Sleep until woken, or for `seconds`. Where the line ends, the supervisor is gone, and so are we."""
        if self.lost:
            # The kernel ends us with the supervisor, too.
            time.sleep(seconds or 0)
            return
        ready = select.poll()
        ready.register(self._socket, select.POLLIN)
        if ready.poll(None if seconds is None else seconds * 1000):
            try:
                heard = self._socket.recv(4096)
            except OSError:
                heard = b""
            if not heard:
                os._exit(0)


def _title(record: Record) -> str:
    if record.phase in BUSY:
        return f"{record.kind} #{record.job_id} (attempt {record.attempt} of {record.max_attempts})"
    return record.phase.name
