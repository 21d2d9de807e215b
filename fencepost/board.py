"""The board: what a worker says of itself, and the supervisor to it, in a page of memory that the two share.

A fixed record that the worker alone writes, and beside it the orders that the supervisor alone writes. There is no message
to be half sent by a dying child, nothing to decode that a child could make dangerous, and nothing to do per job in the
parent: it looks on its own ticks.

Invariant: the supervisor believes nothing here that could harm another slot. A child can scribble on its page, and on no
other's, which it has not got. A record counts only with its checksum, which also tells a half-written one from a whole one;
the name of a claim is made of the worker's name, which the supervisor gave it; what can't be read is asked of the table.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import struct
import time
import zlib
from enum import IntEnum
from typing import Any, NamedTuple

from fencepost.job import StopReason


class Phase(IntEnum):
    """What a worker does."""

    booting = 0
    idle = 1
    claiming = 2
    running = 3
    finishing = 4
    leaving = 5


BUSY = (Phase.running, Phase.finishing)
"""The phases in which a worker holds a job that a heartbeat keeps."""


class Record(NamedTuple):
    """What a worker says of itself. Times are seconds of CLOCK_BOOTTIME, which goes on while the machine sleeps.

    `claimed_at` was read before the claim was sent: every deadline of the run counts from it. One that leaves says there since
    when. `max_runtime` counts from it too, and so holds what the claim has waited for. `retry_in` is the wait that the handler
    wants before the next attempt, should this run die; `progress` is done and total, NaN where nothing is known.
    """

    phase: Phase
    claim: int = 0
    job_id: int = 0
    fence: int = 0
    attempt: int = 0
    max_attempts: int = 0
    claimed_at: float = 0.0
    max_runtime: float = 0.0
    retry_in: float = 0.0
    progress: tuple[float, float] = (float("nan"), float("nan"))
    kind: str = ""
    tenant: str = ""

    def kills_itself_at(self, grace: float) -> float:
        """Return when the kernel ends this worker, should the supervisor not have killed its run by then (protocol, rule 13).

        `grace` is what the run has after it was asked to stop, in seconds of CLOCK_BOOTTIME, as all of them are.
        """
        return self.claimed_at + self.max_runtime + grace + UNLESS_KILLED


UNLESS_KILLED = 3.0
"""Seconds that the supervisor has for killing a run that does not stop: it takes one at most."""

_RECORD = struct.Struct("<BQqqIIddddd64s64s")
_CHECKSUM = struct.Struct("<I")
_ORDERS = struct.Struct("<QBBBQB")
_ORDERS_AT = 384
_SIZE = mmap.PAGESIZE
_TRIES = 5
_REASONS: tuple[StopReason | None, ...] = (None, "max_runtime", "drain", "cancel", "lease")


class Orders(NamedTuple):
    """What the supervisor says to a worker.

    `wakes` counts wake-ups. `drain` and `leave`: claim no more, and leave after the job that runs; in a drain what was claimed
    and not started goes back. `pause`: claim nothing for now. `stop`: the claim that is to stop, and why.
    """

    wakes: int = 0
    drain: bool = False
    leave: bool = False
    pause: bool = False
    stop: tuple[int, StopReason | None] = (0, None)


class Board:
    """A page of anonymous shared memory for one worker: no file, no descriptor, and gone with the last of the two."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _SIZE)
        # The supervisor's own words, as it said them: what stands on the page may have been scribbled over since.
        self._orders = Orders()
        self._words = _words(self._orders)
        self._last: tuple[bytes, Record | None] = (b"", None)
        self.write(Record(Phase.booting))

    def keep_from_others(self) -> None:
        """Leave the page out of all later forks. Called after the fork of its own worker."""
        with contextlib.suppress(OSError):  # no memory for the note of it: the page is as good as before
            self._memory.madvise(mmap.MADV_DONTFORK)

    def close(self) -> None:
        """Give the page back: its worker is dead."""
        self._memory.close()

    # ---- written by the worker

    def write(self, record: Record) -> None:
        """Replace the record."""
        body = _RECORD.pack(
            record.phase,
            record.claim,
            record.job_id,
            record.fence,
            record.attempt,
            record.max_attempts,
            record.claimed_at,
            record.max_runtime,
            record.retry_in,
            *record.progress,
            _cut(record.kind),
            _cut(record.tenant),
        )
        self._memory[: _RECORD.size + _CHECKSUM.size] = body + _CHECKSUM.pack(zlib.crc32(body))

    # ---- written by the supervisor

    def order(self, **changed: Any) -> None:
        """Change what the supervisor says, by the names of `Orders`."""
        self._orders = self._orders._replace(**changed)
        self._words = _words(self._orders)
        self.say_again()

    def wake(self) -> None:
        """Count a wake-up: a worker that is about to sleep compares this with what it was before its last look."""
        self.order(wakes=self._orders.wakes + 1)

    def say_again(self) -> None:
        """Write the orders anew: what a job has scribbled there must not last."""
        # In one piece: what is written byte by byte is read half written, and what stands there stays the same meanwhile.
        self._memory[_ORDERS_AT : _ORDERS_AT + _ORDERS.size] = self._words

    # ---- read by either side

    def read(self) -> Record | None:
        """Return the record, or None if it can't be read: half written, or scribbled over."""
        for _ in range(_TRIES):
            written = self._memory[: _RECORD.size + _CHECKSUM.size]
            if written == self._last[0]:
                # Most are the same at most ticks.
                return self._last[1]
            body = written[: _RECORD.size]
            (checksum,) = _CHECKSUM.unpack_from(written, _RECORD.size)
            if checksum == zlib.crc32(body):
                try:
                    self._last = (written, _record(body))
                except ValueError:
                    return None
                return self._last[1]
        return None

    @property
    def orders(self) -> Orders:
        """What the supervisor says."""
        wakes, drain, leave, pause, claim, reason = _ORDERS.unpack_from(self._memory, _ORDERS_AT)
        return Orders(
            wakes, bool(drain), bool(leave), bool(pause), (claim, _REASONS[reason] if reason < len(_REASONS) else None)
        )


def boottime() -> float:
    """Return seconds of CLOCK_BOOTTIME: monotonic, and not stopped by a suspended machine."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _words(said: Orders) -> bytes:
    claim, reason = said.stop
    return _ORDERS.pack(said.wakes, said.drain, said.leave, said.pause, claim, _REASONS.index(reason))


def _cut(text: str) -> bytes:
    return text.encode(errors="replace")[:64]


def _record(body: bytes) -> Record:
    (phase, claim, job_id, fence, attempt, max_attempts, claimed_at, max_runtime, retry_in, done, total, kind, tenant) = (
        _RECORD.unpack(body)
    )
    # A comparison with NaN is false: such a run would never be past its deadline.
    if not all(map(math.isfinite, (claimed_at, max_runtime, retry_in))):
        raise ValueError("a time that is no number")
    return Record(
        phase=Phase(phase),
        claim=claim,
        job_id=job_id,
        fence=fence,
        attempt=attempt,
        max_attempts=max_attempts,
        claimed_at=claimed_at,
        max_runtime=max_runtime,
        retry_in=retry_in,
        progress=(done, total),
        kind=kind.rstrip(b"\0").decode(errors="replace"),
        tenant=tenant.rstrip(b"\0").decode(errors="replace"),
    )
