"""Run what is due, in the order of a worker's claims.

Invariant: each job that is run was claimed, and is finished, by the statements of a worker; where it then stands is what the
table says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection

from fencepost.handlers import handler_of
from fencepost.job import Ended, JobError, Outcome
from fencepost.jobs import claim as claims
from fencepost.jobs.claim import Claim
from fencepost.jobs.finish import finish
from fencepost.jobs.report import job
from fencepost.settings import Settings, read
from fencepost.testing.caller import Caller, ainside, inside
from fencepost.testing.inline import InlineRun, Judged, judged, next_name, told
from fencepost.worker import finish as finishes
from fencepost.worker.claim import budgets
from fencepost.worker.lanes import ALL, Lanes

MOST = 1000
"""Runs of a drain without a limit of its own."""


def drain(
    conn: Connection[Any],
    *,
    queues: Sequence[str] = (ALL,),
    now: datetime | None = None,
    limit: int | None = None,
) -> list[InlineRun]:
    """Run the jobs that are due and visible in the transaction of `conn`, also those that it has enqueued itself.

    Returns the runs, in their order. Jobs that these enqueue run too. What is to be tried again, or was snoozed, is put back
    and not due any more: call `drain` again, with a later `now`. Jobs of a kind without a handler stay queued.

    queues: which, in order of preference; `*` is all.
    now: an aware datetime at which to drain, instead of the server's clock. Jobs scheduled up to then are due.
    limit: run no more than this.

    Raises JobError if 1000 jobs have run, no limit was given and more are due; or if `conn` can't have a transaction open.
    """
    return inside(conn, _prepared(queues, now, limit))


async def adrain(
    conn: AsyncConnection[Any],
    *,
    queues: Sequence[str] = (ALL,),
    now: datetime | None = None,
    limit: int | None = None,
) -> list[InlineRun]:
    """Run what is due in the transaction of an AsyncConnection; as `drain`. Jobs run in a thread, with loops of their own."""
    return await ainside(conn, _prepared(queues, now, limit))


def _prepared(queues: Sequence[str], now: datetime | None, limit: int | None) -> partial[list[InlineRun]]:
    if isinstance(queues, str):
        raise TypeError(f"queues must be a list of names, such as [{queues!r}]")
    if now is not None and now.tzinfo is None:
        raise ValueError("now must have a time zone: a naive datetime means another moment on every machine")
    return partial(_drain, queues=tuple(queues), now=now, limit=limit, settings=read())


def _drain(
    caller: Caller, *, queues: tuple[str, ...], now: datetime | None, limit: int | None, settings: Settings
) -> list[InlineRun]:
    moment = claims.moment(caller.conn(), settings.schema)
    due_by = now or moment
    ran: list[InlineRun] = []
    while limit is None or len(ran) < limit:
        claim = _next(caller, queues, due_by, settings)
        if claim is None:
            break
        if limit is None and len(ran) == MOST:
            raise JobError(f"{MOST} jobs have run, and {claim.kind!r} is due: does it enqueue itself? limit=… runs no more")
        ran.append(_run(caller, claim, due_by - moment, settings))
        if not caller.is_in_transaction:
            break
    return ran


def _next(caller: Caller, queues: tuple[str, ...], due_by: datetime, settings: Settings) -> Claim | None:
    conn = caller.conn()
    lanes = Lanes(queues)
    lanes.look_at_all(claims.lanes(conn, settings.schema, queues, due_by))
    return claims.claim(
        conn,
        settings.schema,
        name=next_name(),
        lanes=lanes.in_order(),
        max_attempts=budgets(settings),
        lease=timedelta(seconds=settings.lease),
        due_by=due_by,
    )


def _run(caller: Caller, claim: Claim, ahead: timedelta, settings: Settings) -> InlineRun:
    ended = judged(caller, claim, handler_of(claim.kind), settings, in_table=True)
    if not ended.finished and ended.outcome.ended is not Ended.lost:
        ended = _finished(caller, claim, ended, ahead, settings)
    row = job(caller.conn(), settings.schema, claim.id)
    return told(claim, ended, None if row is None else row["status"])


def _finished(caller: Caller, claim: Claim, ended: Judged, ahead: timedelta, settings: Settings) -> Judged:
    """Write the outcome; return what was written. A wait counts from when the drain is said to be, `ahead` of the clock."""

    def sent(outcome: Outcome) -> bool:
        conn = caller.conn()
        later = replace(outcome, wait=outcome.wait + ahead)
        with conn.transaction():
            return finish(conn, settings.schema, claim.id, claim.fence, claim.name, later)

    try:
        held_to_the_end = sent(ended.outcome)
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        ended = Judged(finishes.refused(ended.outcome, error), error)
        held_to_the_end = sent(ended.outcome)
    # A job that has rolled back the caller's transaction has taken back its own claim with it, and has failed all the same.
    return ended if held_to_the_end or not caller.is_in_transaction else replace(ended, outcome=Outcome(Ended.lost))
