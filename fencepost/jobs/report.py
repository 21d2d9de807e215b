"""What `list`, `show` and `status` read. Nothing here writes, and nothing reads the whole table.

Rows are dicts whose names are the keys of `--json`. What jobs have put in is text that says anything at all: it comes
as text and is not parsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection, ClientCursor, Connection
from psycopg.rows import dict_row, tuple_row

from fencepost.job import Status
from fencepost.jobs.sql import statement

Row = dict[str, Any]

WINDOW = 200_000
"""How far back `list` looks for jobs that pass a filter which no index helps with."""

INDEXED = ("queued", "running", "dead")
"""Statuses that have an index of their own: here `list` looks at all of them."""

CUT = 200
"""Characters of payload and error in a list."""

COUNT_TO = 100_000
"""As far as `status` counts."""

RUNS = 1_000
"""As many runs of a job are shown."""


@dataclass(frozen=True, slots=True)
class Filters:
    """What `list` shows; None is any."""

    status: str | None = None
    kind: str | None = None
    queue: str | None = None
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Jobs, newest first. `above` is the id down to which was looked, 0 for all there are.

    `next_before` is the id before which to look for the next page, None if there is no further one.
    """

    jobs: list[Row]
    above: int
    next_before: int | None


def page(conn: Connection[Any], schema: str, filters: Filters, limit: int, before: int | None = None) -> Page:
    """Return the newest jobs that pass `filters`, of those with an id below `before`."""
    above = 0
    if filters != Filters() and filters.status not in INDEXED:
        newest: int = _one(conn, "newest", schema)["id"]
        above = max(0, (newest if before is None else min(newest, before - 1)) - WINDOW)
    arguments = {
        "status": filters.status,
        "kind": filters.kind,
        "queue": filters.queue,
        "tenant": filters.tenant,
        "above": above,
        "before": before,
        # One more than is shown: whether there is a next page.
        "limit": limit + 1,
        "cut": CUT,
    }
    cursor = ClientCursor(conn, row_factory=dict_row)
    found = cursor.execute(statement("list", schema), arguments).fetchall()
    if len(found) > limit:
        return Page(found[:limit], above, found[limit - 1]["id"])
    return Page(found, above, above + 1 if above else None)


def statuses(conn: Connection[Any], schema: str, job_ids: Sequence[int]) -> dict[int, Status]:
    """Return the status of each of the jobs that there are."""
    return {row["id"]: row["status"] for row in _rows(conn, "statuses", schema, {"ids": list(job_ids)})}


def job(conn: Connection[Any], schema: str, job_id: int) -> Row | None:
    """Return a job, or None if there is none."""
    rows = _rows(conn, "show", schema, {"id": job_id})
    return rows[0] if rows else None


def runs(conn: Connection[Any], schema: str, job_id: int) -> list[Row]:
    """Return how the runs of a job ended, in their order."""
    return _rows(conn, "runs", schema, {"id": job_id, "limit": RUNS})


def living(conn: Connection[Any], schema: str) -> list[Row]:
    """Return the supervisors that were seen lately."""
    return _rows(conn, "living", schema)


async def aliving(conn: AsyncConnection[Any], schema: str) -> list[Row]:
    """Return the supervisors that were seen lately, on an AsyncConnection."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement("living", schema))
        return await cursor.fetchall()


def counts(conn: Connection[Any], schema: str) -> Row:
    """Return how many jobs are queued, running, dead, and running with an expired lease; each counted to COUNT_TO."""
    return _one(conn, "counts", schema, {"most": COUNT_TO})


def due_kinds(conn: Connection[Any], schema: str) -> list[Row]:
    """Return the pairs of queue and kind that wait though they are due, those that wait longest first."""
    return _rows(conn, "due_kinds", schema)


def bypassing_workers(conn: Connection[Any], schema: str) -> list[Row]:
    """Return the logins of running workers that row-level security does not apply to."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        logins = [login for (login,) in cursor.execute(statement("worker_logins", schema))]
    return _rows(conn, "bypassing", schema, {"roles": logins, "owners_too": False})


def _one(conn: Connection[Any], verb: str, schema: str, arguments: Row | None = None) -> Row:
    return _rows(conn, verb, schema, arguments)[0]


def _rows(conn: Connection[Any], verb: str, schema: str, arguments: Row | None = None) -> list[Row]:
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(statement(verb, schema), arguments).fetchall()
