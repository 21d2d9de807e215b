"""Take back what expired leases hold: jobs of supervisors that are gone.

Only what was seen expired, and stands there unchanged for a heartbeat and its time limit by our own clock, is taken: a step
of the server's clock, or another clock after a failover, would otherwise end all leases at once (protocol, rule 14).

No index knows when leases end, since each heartbeat would have to change it. So each run is read once, when it has gone on
for a while, and again when the end that its lease had then has come: a look costs what began lately and the few whose time it
is.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import psycopg
import structlog

from fencepost.board import boottime
from fencepost.jobs.sweep import Asked, Lease, Read, read_leases, sweep
from fencepost.supervisor.database import Away, Conn
from fencepost.supervisor.state import State

log = structlog.get_logger()

LOOK_AT_ALL_EVERY = 60.0
"""Seconds between looks at all leases: the server's clock may have been set back, or a claim's commit have taken long."""

LOOK_FROM_AGE = 10.0
"""Seconds after which a run is looked at, at most: its claim is committed by then, and most runs are over."""

AT_ONCE = 200
"""Leases swept in one statement: each takes a lock, and the statement has a time limit."""


@dataclass(slots=True)
class Seen:
    """What is known of all leases. Times are ours, `mark` and `read_at` are the server's.

    `known` are those of runs that were read and may still go on, by job, as they stood then. `expired` are those of them that
    had run out, and since when that has been seen, and `by` is the connection that saw them.
    """

    age: float = LOOK_FROM_AGE
    by: Conn | None = None
    mark: datetime | None = None
    all_at: float = float("-inf")
    read_at: tuple[datetime, float] | None = None
    known: dict[int, Lease] = field(default_factory=dict)
    expired: dict[Lease, float] = field(default_factory=dict)

    def asks(self, now: float) -> Asked:
        """Return what to read next."""
        age = timedelta(seconds=self.age)
        if self.read_at is None or now - self.all_at >= LOOK_AT_ALL_EVERY:
            return Asked(None, age, [])
        server, ours = self.read_at
        servers_now = server + timedelta(seconds=now - ours)
        return Asked(self.mark, age, [lease.id for lease in self.known.values() if lease.locked_until <= servers_now])

    def learns(self, asked: Asked, read: Read, now: float) -> None:
        """Take in what was read."""
        if asked.mark is None:
            self.all_at = now
        elif self.read_at is not None and read.at < self.read_at[0]:
            # The server's clock was set back: what begins from now on may lie before the mark.
            self.all_at = float("-inf")
        for job in asked.ids:
            del self.known[job]
        self.known.update((lease.id, lease) for lease in read.leases)
        self.mark, self.read_at = read.mark, (read.at, now)
        # Whatever had run out was asked for: what is not among it any more was prolonged, or has ended.
        self.expired = {lease: self.expired.get(lease, now) for lease in read.leases if lease.locked_until <= read.at}

    def forget(self, by: Conn) -> None:
        """Begin anew on another connection: of another server perhaps, with another clock, that may know less.

        Which duty met the end of the connection before does not matter.
        """
        self.by, self.all_at = by, float("-inf")
        self.expired.clear()

    def ripe(self, now: float, patience: float) -> list[Lease]:
        """Return those that have been seen expired for long enough."""
        return [lease for lease, since in self.expired.items() if now - since >= patience]


async def sweep_expired(state: State) -> None:
    """Sweep at each period, for as long as the supervisor lives."""
    # A lease that is shorter than ours is seen late by no more than this.
    seen = Seen(age=min(LOOK_FROM_AGE, state.settings.lease / 2))
    patience = state.settings.heartbeat + state.settings.heartbeat_limit
    while True:
        await asyncio.sleep(state.settings.sweep)
        try:
            await _sweep(state, seen, patience)
        except Away:
            pass  # said by the link
        except psycopg.Error as error:
            log.warning("a sweep failed", error=str(error).strip())


async def _sweep(state: State, seen: Seen, patience: float) -> None:
    await state.duty.run(lambda conn: _look(conn, state, seen))
    ripe = seen.ripe(boottime(), patience)[:AT_ONCE]
    if not ripe:
        return
    swept = await state.duty.run(lambda conn: sweep(conn, state.settings.schema, ripe))
    for lease in ripe:
        # Taken, changed, or locked just now: the next look finds what is still to be taken.
        del seen.expired[lease]
    for lease in swept:
        log.warning("swept a job whose lease had expired", job=lease.id, fence=lease.fence, worker=lease.name, outcome="lost")
    if swept:
        state.look_now.set()


async def _look(conn: Conn, state: State, seen: Seen) -> None:
    if conn is not seen.by:
        seen.forget(conn)
    now = boottime()
    asked = seen.asks(now)
    seen.learns(asked, await read_leases(conn, state.settings.schema, asked), now)
