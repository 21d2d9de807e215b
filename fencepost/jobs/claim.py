"""Take one due job: count it, lease it, fence it, committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from psycopg import AsyncConnection, Connection
from psycopg.rows import dict_row

from fencepost.jobs.sql import statement


@dataclass(frozen=True, slots=True)
class Lane:
    """A pair of queue and priority, and the key behind which it is searched."""

    queue: str
    priority: int
    after_run_at: datetime
    after_id: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A job as it was claimed. `name` is the claim's own, `fence` its number; `attempt` counts this run.

    `payload` is JSON text still: it may be what kills its parser, and is parsed as part of the run.
    """

    id: int
    fence: int
    name: str
    queue: str
    kind: str
    payload: str
    tenant: str | None
    priority: int
    run_at: datetime
    attempt: int
    max_attempts: int
    max_runtime: timedelta | None
    created_at: datetime


def claim(
    conn: Connection[Any],
    schema: str,
    *,
    name: str,
    lanes: Sequence[Lane],
    max_attempts: dict[str, int],
    lease: timedelta,
    due_by: datetime | None = None,
) -> Claim | None:
    """Claim the first due job of `lanes`, in their order, of a kind in `max_attempts` (each with its handler's budget).

    Due is what is due by `due_by`; None is when the transaction began.
    """
    with conn.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            statement("claim", schema),
            {
                "name": name,
                "queues": [lane.queue for lane in lanes],
                "priorities": [lane.priority for lane in lanes],
                "after_run_at": [lane.after_run_at for lane in lanes],
                "after_id": [lane.after_id for lane in lanes],
                "kinds": list(max_attempts),
                "max_attempts": list(max_attempts.values()),
                "lease": lease,
                "due_by": due_by,
            },
        )
        row = cursor.fetchone()
    if row is None:
        return None
    del row["made_durable"]
    return Claim(**row)


def held(conn: Connection[Any], schema: str, worker: str) -> list[Claim]:
    """Return what `worker` holds: asked of the table, where an answer was lost."""
    with conn.cursor(row_factory=dict_row) as cursor:
        cursor.execute(statement("held", schema), {"worker": worker})
        return [Claim(**row) for row in cursor]


def lanes(conn: Connection[Any], schema: str, queues: Sequence[str], due_by: datetime | None = None) -> list[tuple[str, int]]:
    """Return the pairs of queue and priority in which due jobs may wait, of `queues` (`*` is all); `due_by` as in `claim`."""
    return conn.execute(statement("lanes", schema), {"queues": list(queues), "due_by": due_by}).fetchall()


def moment(conn: Connection[Any], schema: str) -> datetime:
    """Return what time it is by the server's clock, however long the transaction has been open."""
    return cast("tuple[datetime]", conn.execute(statement("moment", schema)).fetchone())[0]


async def aheld(conn: AsyncConnection[Any], schema: str, worker: str) -> list[Claim]:
    """Return what `worker` holds, as `held`."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement("held", schema), {"worker": worker})
        return [Claim(**row) async for row in cursor]
