"""Take back what expired leases hold: jobs of supervisors that are gone.

Only what was seen expired, and stands there unchanged for a heartbeat and its time limit by our own clock, is taken: a step
of the server's clock, or another clock after a failover, would otherwise end all leases at once (protocol, rule 14).
"""

from __future__ import annotations

import asyncio

import psycopg
import structlog

from fencepost.board import boottime
from fencepost.jobs.sweep import sweep
from fencepost.supervisor.database import Away
from fencepost.supervisor.look import look_at_leases
from fencepost.supervisor.state import State

log = structlog.get_logger()

FOR_A_POLL = 0.05
"""Seconds, at most, that a poll may come late and still take the sweep's question along."""

AT_ONCE = 200
"""Leases swept in one statement: each takes a lock, and the statement has a time limit."""


async def sweep_expired(state: State) -> None:
    """Sweep at each period, for as long as the supervisor lives."""
    period = state.settings.sweep
    while True:
        try:
            async with asyncio.timeout(period + min(FOR_A_POLL, period / 10)):
                await state.leases_read.wait()
        except TimeoutError:
            pass
        try:
            if not state.leases_read.is_set():
                await look_at_leases(state)
            state.leases_read.clear()
            await _sweep(state)
        except Away:
            pass  # said by the link
        except psycopg.Error as error:
            log.warning("a sweep failed", error=str(error).strip())


async def _sweep(state: State) -> None:
    leases = state.leases
    patience = state.settings.heartbeat + state.settings.heartbeat_limit
    ripe = leases.ripe(boottime(), patience)[:AT_ONCE]
    if not ripe:
        return
    swept = await state.duty.run(lambda conn: sweep(conn, state.settings.schema, ripe))
    # Taken, changed, or locked just now: the next look finds what is still to be taken.
    leases.take_out(ripe)
    for lease in swept:
        log.warning("swept a job whose lease had expired", job=lease.id, fence=lease.fence, worker=lease.name, outcome="lost")
    if swept:
        state.look_now.set()
