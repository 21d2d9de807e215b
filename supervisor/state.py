"""The supervisor's state, in one place: slots, the child in each, and what is to become of it.

All times are seconds of CLOCK_BOOTTIME. Duties read this and change it from one thread, between awaits.
"""

from __future__ import annotations

import asyncio
import os
import socket
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

import structlog

from fencepost.board import BUSY, Board, Phase, Record
from fencepost.settings import Settings
from fencepost.supervisor.database import Link
from fencepost.supervisor.leases import Leases

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Kill:
    """Why we ended a child, and which claim was meant. `stack` is where its threads were, `detail` is for people."""

    reason: str
    claim: int
    stack: str | None = None
    detail: str = ""


@dataclass(slots=True)
class Child:
    """A living worker. `kept` is the claim that a heartbeat has prolonged last, and when that heartbeat was sent."""

    name: str
    slot: int
    pid: int
    pidfd: int | None
    board: Board
    line: socket.socket
    note: int
    stacks: int
    memory: int
    """What it was forked with, in bytes: more is its own."""
    forked_at: float
    ready: bool = False
    gone: bool = False
    """Whether it is dead and buried: whoever has waited meanwhile must not touch the next one in its slot."""
    leaving: bool = False
    """Whether it was told to leave after its job."""
    kept: tuple[int, float] = (0, 0.0)
    stopping: int = 0
    """The claim that is being stopped: asked first, killed if it goes on."""
    doomed: Kill | None = None
    """The kill that is coming: the run has used up its grace, and its stacks are being written."""
    kill: Kill | None = None
    killed_at: float = 0.0
    outlives_its_kill: bool = False
    """Whether SIGKILL has not ended it: it sleeps in the kernel, and nobody can."""
    held: tuple[int, float] | None = None
    """The claim for which its group is stopped, until a heartbeat tells whether that still has its lease, and since when."""
    unreadable_since: float | None = None
    woken_at: float = 0.0

    def record(self) -> Record | None:
        """Return what it says of itself, or None if that can't be read."""
        return None if self.gone else self.board.read()

    def say(self, word: bytes, **orders: bool) -> None:
        """Give orders. They go first: who is about to sleep sees them, and who sleeps is woken by the word."""
        self.board.order(**orders)
        try:
            self.line.send(word)
        except OSError:
            pass  # full, then it has enough to wake it; or dead, then the kernel tells

    def leave(self) -> None:
        """Have it leave after its job."""
        self.leaving = True
        self.say(b"l", leave=True)

    def close(self) -> None:
        """Close what the supervisor has open of it."""
        self.gone = True
        self.board.close()
        self.line.close()
        for fd in (self.pidfd, self.note, self.stacks):
            if fd is not None:
                os.close(fd)


TRIAL = 0
"""The number of the slot in which handlers are only tried."""


@dataclass(slots=True)
class Slot:
    """A child's numbered place.

    `failed_starts` counts starts in a row that never got ready, `died_at_start` those of them that ended by themselves. One
    that is `closing` goes with its child.
    """

    number: int
    child: Child | None = None
    closing: bool = False
    failed_starts: int = 0
    died_at_start: int = 0
    refill_at: float = 0.0


@dataclass(slots=True)
class State:
    """All that the duties share."""

    settings: Settings
    name: str
    slots: list[Slot]
    """In order of their numbers."""
    duty: Link
    """The connection for what is short and can wait a moment: polls, sweeps, pruning, this supervisor's row."""
    bookings_link: Link
    """The bookings' own: they wait for rows that others have locked."""
    beats: Link
    """The heartbeat's own, so that nothing is before it."""
    leases: Leases = field(default_factory=Leases)
    """What is known of all leases, ours and others': the sweep's."""
    kinds: list[str] | None = None
    ever_ready: bool = False
    listening: bool = False
    wants_to_be_told: bool = True
    """Whether notifications of what is enqueued are of use: not while no worker has been idle for a while."""
    told: bool = False
    """Whether the row says so, and whoever enqueues notifies."""
    trial: str | None = None
    """What the last trial of the handlers found wrong; empty: nothing, None: there is no answer yet."""
    paused: bool = False
    """Whether workers are to claim nothing for now."""
    all_sleep: bool = False
    """Whether the next tick is far away, since no worker has a deadline: whoever wakes one brings it near."""
    looks_asked_for: int = 0
    """How many looks inside (USR1) are to be told; the first of them is being told."""
    drain_step: int = 0
    """0: no drain. 1: running jobs may finish. 2: they are stopped. 3: they are killed."""
    stopped_jobs: bool = False
    """Whether the drain had to stop a job: the exit code says so."""
    gone_at: float = float("inf")
    """When all children have to be gone, or are left behind: a drain is through in time whatever it meets."""
    exit_code: int | None = None
    exit_reason: str = ""
    bookings: set[asyncio.Task[None]] = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    born_with: frozenset[int] = frozenset()
    """Children that this process had before it forked any: a shell's, that became us. Not ours to end."""
    strays: set[int] = field(default_factory=set)
    """Processes that jobs have left elsewhere, and that are not gone yet."""
    reap: Callable[[], None] = lambda: None
    """Called by the loop when the kernel tells of a death."""
    register_now: asyncio.Event = field(default_factory=asyncio.Event)
    beat_now: asyncio.Event = field(default_factory=asyncio.Event)
    look_now: asyncio.Event = field(default_factory=asyncio.Event)
    leases_read: asyncio.Event = field(default_factory=asyncio.Event)
    replace_now: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the tick has something to do at once: a child has died, a slot was added, or we are to leave."""

    @property
    def draining(self) -> bool:
        """Whether this supervisor claims no more."""
        return self.drain_step > 0

    def children(self) -> list[Child]:
        """Return the living children."""
        return [slot.child for slot in self.slots if slot.child is not None]

    def busy(self) -> list[tuple[Child, Record]]:
        """Return the children that hold a job which a heartbeat keeps."""
        records = [(child, child.record()) for child in self.children()]
        return [(child, record) for child, record in records if record is not None and record.phase in BUSY]

    def idle(self) -> list[Child]:
        """Return the children that sleep, the one that was woken longest ago first.

        So that one which does not wake up, stopped by someone, is not woken for ever in place of the others.
        """
        records = [(child, child.record()) for child in self.children() if child.ready and not child.leaving]
        sleeping = [child for child, record in records if record is not None and record.phase is Phase.idle]
        return sorted(sleeping, key=lambda child: child.woken_at)

    def leave(self, code: int, reason: str) -> None:
        """Leave with `code`, after what runs has been ended. The first reason stands."""
        if self.exit_code is None:
            self.exit_code, self.exit_reason = code, reason
        self.changed.set()

    def spawn(self, work: Coroutine[None, None, None], *, booking: bool = False) -> None:
        """Do `work` beside the duties. It is kept from being collected, and what it raises is logged."""
        task = asyncio.get_running_loop().create_task(work)
        kept = self.bookings if booking else self.tasks
        kept.add(task)
        task.add_done_callback(kept.discard)
        task.add_done_callback(_tell_of_failure)


def _tell_of_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a task failed", task=task.get_name(), error="".join(traceback.format_exception(error))[-4000:])
