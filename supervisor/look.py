"""Ask for work and for leases in one statement: an idle supervisor sends no more than that.

Each has its duty, with a period of its own, and neither waits for the other. A poll takes the sweep's question along where that
is about due; where this fails, both are asked apart until the sweep was answered.
"""

from __future__ import annotations

from functools import partial

import psycopg

from fencepost.board import boottime
from fencepost.jobs.look import Waiting, Work
from fencepost.jobs.look import look as send
from fencepost.supervisor.database import Away, Conn
from fencepost.supervisor.state import State


async def look_for_work(state: State, work: Work) -> Waiting:
    """Look for work, and at leases if it is about time. Raises Away, or what the server says of the statement."""
    leases = state.leases
    too = not leases.apart and boottime() - leases.looked_at >= state.settings.sweep / 2
    try:
        return await state.duty.run(partial(_look, state=state, work=work, leases=too))
    except (Away, psycopg.Error):
        leases.apart = too or leases.apart
        raise


async def look_at_leases(state: State) -> None:
    """Look at leases alone. Raises Away, or what the server says of the statement."""
    await state.duty.run(partial(_look, state=state, work=None, leases=True))
    state.leases.apart = False


async def _look(conn: Conn, state: State, work: Work | None, *, leases: bool) -> Waiting:
    seen = state.leases
    if conn is not seen.by:
        seen.forget(conn)
    now = boottime()
    asked = seen.asks(now) if leases else None
    waiting, read = await send(conn, state.settings.schema, work, asked)
    if asked is not None:
        seen.learns(asked, read, now)
        state.leases_read.set()
    return waiting
