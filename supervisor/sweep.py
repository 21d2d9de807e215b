"""Take back what expired leases hold: jobs of supervisors that are gone.

Only what was seen expired, and stands there unchanged for a heartbeat and its time limit by our own clock, is taken: a step
of the server's clock, or another clock after a failover, would otherwise end all leases at once (protocol, rule 14).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime

import psycopg
import structlog

from fencepost.board import boottime
from fencepost.jobs.sweep import Expired, expired, sweep
from fencepost.supervisor.database import Away, Conn
from fencepost.supervisor.state import State

log = structlog.get_logger()

LOOK_AT_ALL_EVERY = 60.0
"""Seconds between looks that begin at the very first lease: the server's clock may have been set back."""

AT_ONCE = 200
"""Leases swept in one statement: each takes a lock, and the statement has a time limit."""

THE_BEGINNING = datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True)
class Seen:
    """Which expired leases were seen, and since when, by our clock. `by` is the connection that saw them."""

    by: Conn | None = None
    mark: datetime = THE_BEGINNING
    all_at: float = float("-inf")
    since: dict[Expired, float] = field(default_factory=dict)

    def ripe(self, now: float, patience: float) -> list[Expired]:
        """Return those that have been seen for long enough."""
        return [lease for lease, since in self.since.items() if now - since >= patience]


async def sweep_expired(state: State) -> None:
    """Sweep at each period, for as long as the supervisor lives."""
    seen = Seen()
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
    now = boottime()
    looked_at, found = await state.duty.run(lambda conn: _look(conn, state, seen, now))
    seen.mark = looked_at
    for lease in found:
        seen.since.setdefault(lease, now)
    ripe = seen.ripe(boottime(), patience)[:AT_ONCE]
    if not ripe:
        return
    swept = await state.duty.run(lambda conn: sweep(conn, state.settings.schema, ripe))
    for lease in ripe:
        # Taken, changed, or locked just now: the next look finds what is still to be taken.
        del seen.since[lease]
    if len(swept) < len(ripe):
        seen.all_at = float("-inf")
    for lease in swept:
        log.warning("swept a job whose lease had expired", job=lease.id, fence=lease.fence, worker=lease.name, outcome="lost")
    if swept:
        state.look_now.set()


async def _look(conn: Conn, state: State, seen: Seen, now: float) -> tuple[datetime, list[Expired]]:
    if conn is not seen.by:
        # Another server, perhaps, with another clock and leases that end before the mark: it may know less than the one before.
        # Which duty met the end of the connection does not matter.
        seen.by, seen.all_at = conn, float("-inf")
        seen.since.clear()
    if now - seen.all_at >= LOOK_AT_ALL_EVERY:
        seen.mark, seen.all_at = THE_BEGINNING, now
    return await expired(conn, state.settings.schema, seen.mark)
