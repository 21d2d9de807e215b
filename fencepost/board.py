"""The board: what workers say of themselves, in memory that they share with the supervisor.

A fixed record a slot, written by its worker alone, and beside it one written by the supervisor alone. There is no message
to be half sent by a dying child, nothing to decode that a child could make dangerous, and nothing to do per job in the
parent: it looks on its own ticks.

Invariant: the supervisor believes nothing here that could harm another slot. A child can scribble on all of it. A record
counts only with its checksum, which also tells a half-written one from a whole one; the name of a claim is made of the
worker's name, which the supervisor gave it; what can't be read is asked of the table.
"""

from __future__ import annotations

import math
import mmap
import struct
import time
import zlib
from dataclasses import dataclass
from enum import IntEnum

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


@dataclass(frozen=True, slots=True)
class Record:
    """What a worker says of itself. Times are seconds of CLOCK_BOOTTIME, which goes on while the machine sleeps.

    `claimed_at` was read before the claim was sent: every deadline of the run counts from it. `retry_in` is the wait that
    the handler wants before the next attempt, should this run die; `progress` is done and total, NaN where nothing is known.
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


_RECORD = struct.Struct("<BQqqIIddddd64s64s")
_CHECKSUM = struct.Struct("<I")
_ORDERS = struct.Struct("<QB")
_HEADER = struct.Struct("<QB")
_SLOT_SIZE = 512
_ORDERS_AT = 384
_TRIES = 5
_REASONS: tuple[StopReason | None, ...] = (None, "max_runtime", "drain", "cancel", "lease")


class Board:
    """An anonymous shared mapping: no file, no descriptor, and gone with its last process."""

    def __init__(self, slots: int) -> None:
        self._memory = mmap.mmap(-1, _SLOT_SIZE * (slots + 1))
        self.slots = slots
        # The supervisor's own words, as it said them: what stands on the board may have been scribbled over since.
        self._wakes = 0
        self._draining = False

    # ---- written by the worker of a slot

    def write(self, slot: int, record: Record) -> None:
        """Replace the record of `slot`."""
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
        at = self._at(slot)
        self._memory[at : at + _RECORD.size + _CHECKSUM.size] = body + _CHECKSUM.pack(zlib.crc32(body))

    # ---- written by the supervisor

    def clear(self, slot: int) -> None:
        """Make a slot new for the next worker: booting, and nothing asked of it. Before the fork, never after."""
        self.write(slot, Record(Phase.booting))
        self.ask_to_stop(slot, 0, None)

    def ask_to_stop(self, slot: int, claim: int, reason: StopReason | None) -> None:
        """Say which claim of the slot's worker is to stop and why. It names the claim, so that no other one stops."""
        at = self._at(slot) + _ORDERS_AT
        self._memory[at : at + _ORDERS.size] = _ORDERS.pack(claim, _REASONS.index(reason))

    def wake(self) -> None:
        """Count a wake-up: a worker that is about to sleep compares this with what it was before its last look."""
        self._wakes += 1
        self.say_again()

    def drain(self) -> None:
        """Tell every worker to claim no more."""
        self._draining = True
        self.say_again()

    def say_again(self) -> None:
        """Write the supervisor's words anew: a scribble must neither drain the workers nor take a drain back."""
        _HEADER.pack_into(self._memory, 0, self._wakes, self._draining)

    # ---- read by either side

    def read(self, slot: int) -> Record | None:
        """Return the record of `slot`, or None if it can't be read: half written, or scribbled over."""
        at = self._at(slot)
        for _ in range(_TRIES):
            body = self._memory[at : at + _RECORD.size]
            (checksum,) = _CHECKSUM.unpack_from(self._memory, at + _RECORD.size)
            if checksum == zlib.crc32(body):
                try:
                    return _record(body)
                except ValueError:
                    return None
        return None

    def asked_to_stop(self, slot: int) -> tuple[int, StopReason | None]:
        """Return the claim of `slot` that is to stop, and why."""
        claim, reason = _ORDERS.unpack_from(self._memory, self._at(slot) + _ORDERS_AT)
        return claim, _REASONS[reason] if reason < len(_REASONS) else None

    @property
    def wakes(self) -> int:
        """How many wake-ups there were."""
        count: int = _HEADER.unpack_from(self._memory)[0]
        return count

    @property
    def draining(self) -> bool:
        """Whether workers are to claim no more."""
        return bool(_HEADER.unpack_from(self._memory)[1])

    @staticmethod
    def _at(slot: int) -> int:
        return _SLOT_SIZE * slot


def boottime() -> float:
    """Return seconds of CLOCK_BOOTTIME: monotonic, and not stopped by a suspended machine."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


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
