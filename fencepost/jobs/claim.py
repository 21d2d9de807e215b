"""Take one due job: count it, lease it, fence it, committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple, cast

from psycopg import AsyncConnection, Connection
from psycopg.rows import dict_row

from fencepost.job import Outcome
from fencepost.jobs import quick
from fencepost.jobs.finish import NOTHING, finish_arguments
from fencepost.jobs.quick import array, text_array
from fencepost.jobs.sql import statement


class Lane(NamedTuple):
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
    _, claimed = _claim(conn, schema, NOTHING, claim_arguments(name, lanes, max_attempts, lease, due_by))
    return claimed


def finish_and_claim(
    conn: Connection[Any],
    schema: str,
    run: Claim,
    outcome: Outcome,
    *,
    name: str,
    lanes: Sequence[Lane],
    max_attempts: dict[str, int],
    lease: timedelta,
) -> tuple[bool, Claim | None]:
    """Write the outcome of `run` as `finish` does, and claim the next job as `claim` does, in one commit.

    Returns what each returns.
    """
    finished = finish_arguments(run.id, run.fence, run.name, outcome)
    held_to_the_end, claimed = _claim(conn, schema, finished, claim_arguments(name, lanes, max_attempts, lease))
    return bool(held_to_the_end), claimed


def claim_arguments(
    name: str, lanes: Sequence[Lane], max_attempts: dict[str, int], lease: timedelta, due_by: datetime | None = None
) -> dict[str, Any]:
    """Return the arguments of claim.sql, but for those of a finish."""
    kinds, budgets = _budgets(tuple(max_attempts.items()))
    return {
        "claim": name,
        "queues": text_array([lane.queue for lane in lanes]),
        "priorities": array([lane.priority for lane in lanes]),
        "after_run_at": array([lane.after_run_at for lane in lanes]),
        "after_id": array([lane.after_id for lane in lanes]),
        "kinds": kinds,
        "max_attempts": budgets,
        "lease": lease,
        "due_by": due_by,
    }


@lru_cache(maxsize=8)
def _budgets(max_attempts: tuple[tuple[str, int], ...]) -> tuple[str, str]:
    """Return the kinds, and their budgets, as a worker sends them each time."""
    return text_array(kind for kind, _ in max_attempts), array(budget for _, budget in max_attempts)


def _claim(
    conn: Connection[Any], schema: str, finished: dict[str, Any], arguments: dict[str, Any]
) -> tuple[bool | None, Claim | None]:
    row = quick.row(conn, statement("claim", schema), {**finished, **arguments})
    held_to_the_end, job_id, *rest, _made_durable = row
    return held_to_the_end, None if job_id is None else Claim(job_id, *rest)


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
