"""Write down how a dead worker's run ended.

Order (protocol, rule 16): the process is dead, what it left is dead, its sessions on the server are gone; only then is the
row read, by the worker's name, and the outcome written. A look that came earlier could find nothing, and the dead child's
last statement would then still be carried out. None of it holds up reaping or refilling: it waits beside them, for as long
as the database is away.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import psycopg
import structlog
import tenacity

from fencepost.board import boottime
from fencepost.jobs.claim import aheld
from fencepost.jobs.finish import afinish
from fencepost.jobs.sessions import aend_sessions
from fencepost.start import application_name
from fencepost.supervisor.database import Away, Conn
from fencepost.supervisor.deaths import DeadWorker, outcome_of
from fencepost.supervisor.state import State

log = structlog.get_logger()

BETWEEN_TRIES = tenacity.wait_random(0.3, 1.0)
BETWEEN_LOOKS = 0.03
LOOKS = 2
"""As often nothing must be found behind a pooler."""

ENDING_MAY_TAKE = 1.0
"""Seconds that a session gets to end once it was told to, at least."""


async def book(state: State, dead: DeadWorker) -> None:
    """Book what `dead` held, trying until the database has answered."""
    died_at = boottime()
    state_of_try = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    while True:
        try:
            await _all_gone(state, dead, died_at)
            await state.bookings_link.run(lambda conn: _book(conn, state, dead))
        except Away:
            pass  # said by the link
        except psycopg.Error as error:
            # A row that someone has locked, say.
            log.warning("a death is not booked yet", worker=dead.name, error=str(error).strip())
        else:
            return
        await asyncio.sleep(BETWEEN_TRIES(state_of_try))


async def _all_gone(state: State, dead: DeadWorker, died_at: float) -> None:
    """Wait until nothing of the worker runs any more: here, or on the server. At most for its lease: then it is swept."""
    until = None
    application = application_name(dead.name)
    # Behind a pooler what was sent last may not have begun yet.
    looks = LOOKS if state.settings.pooled else 1
    while True:
        left = await state.bookings_link.run(lambda conn: aend_sessions(conn, state.settings.schema, application))
        # From the first answer on, which may come after an outage that was longer than the lease: what is ended only then is
        # not gone yet.
        until = until or max(died_at + state.settings.lease, boottime() + ENDING_MAY_TAKE)
        looks -= not left and not state.strays
        if not looks:
            return
        if boottime() >= until:
            log.error("what a job left behind can't be ended", worker=dead.name, sessions=left, strays=sorted(state.strays))
            return
        await asyncio.sleep(BETWEEN_LOOKS)


async def _book(conn: Conn, state: State, dead: DeadWorker) -> None:
    settings = state.settings
    for claim in await aheld(conn, settings.schema, dead.name):
        outcome = outcome_of(claim, dead, timedelta(seconds=settings.backoff))
        booked = await afinish(conn, settings.schema, claim.id, claim.fence, claim.name, outcome)
        log.warning(
            "booked the run of a dead worker" if booked else "the run of a dead worker had lost its lease",
            job=claim.id,
            kind=claim.kind,
            attempt=claim.attempt,
            fence=claim.fence,
            tenant=claim.tenant,
            worker=dead.name,
            slot=dead.slot,
            outcome=outcome.ended.value,
            error=outcome.summary,
        )
