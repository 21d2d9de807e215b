"""Write how a run ended, under its fence."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg.rows import tuple_row

from fencepost.job import Outcome
from fencepost.jobs import quick
from fencepost.jobs.payload import encode
from fencepost.jobs.sql import statement

NOTHING: dict[str, Any] = dict.fromkeys(
    ("job_id", "fence", "name", "outcome", "wait", "final", "result", "error", "summary", "stack", "max_rss")
)
"""The arguments of claim.sql where there is no run to finish."""


def finish_arguments(job_id: int, fence: int, name: str, outcome: Outcome) -> dict[str, Any]:
    """Return the arguments of finish.sql."""
    return {
        "job_id": job_id,
        "fence": fence,
        "name": name,
        "outcome": outcome.ended.value,
        "wait": outcome.wait,
        "final": outcome.final,
        "result": outcome.result,
        "error": None if outcome.error is None else encode(outcome.error, "error"),
        "summary": outcome.summary,
        "stack": outcome.stack,
        "max_rss": outcome.max_rss,
    }


def finish(conn: Connection[Any], schema: str, job_id: int, fence: int, name: str, outcome: Outcome) -> bool:
    """Write `outcome`. False: the run no longer held its job, and nothing was written. Sent again, it answers the same."""
    return bool(quick.row(conn, statement("finish", schema), finish_arguments(job_id, fence, name, outcome))[0])


async def afinish(conn: AsyncConnection[Any], schema: str, job_id: int, fence: int, name: str, outcome: Outcome) -> bool:
    """Write `outcome`, as `finish`."""
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(statement("finish", schema), finish_arguments(job_id, fence, name, outcome))
        row = await cursor.fetchone()
    return bool(row and row[0])


def outcome_on_record(conn: Connection[Any], schema: str, job_id: int, fence: int, name: str) -> str | None:
    """Return how the run ended, if its end is on record: asked when the answer to a COMMIT was lost."""
    row = conn.execute(statement("outcome", schema), {"job_id": job_id, "fence": fence, "name": name}).fetchone()
    return row[0] if row else None
