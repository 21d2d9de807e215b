"""Enqueuing a hundred thousand jobs in one transaction: `enqueue_many` beside a bare COPY into the same table.

The rows are the same, and both begin with them as Python has them: COPY is given its payloads as JSON, `enqueue_many` its jobs
as NewJob, each made within the time that is measured. By turns on one connection, on an empty table each time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import psycopg
from psycopg import Connection

from fencepost import NewJob, enqueue_many

Row = tuple[str, dict[str, Any], str]

COPY = "copy fencepost.jobs (kind, payload, tenant_id) from stdin"
EMPTY = ("truncate fencepost.jobs cascade", "checkpoint")
"""The checkpoint so that neither pays for what the other has written."""


def measure(url: str, jobs: int = 100_000, rounds: int = 7) -> dict[str, Any]:
    """Return the seconds of each round, their medians, and how `enqueue_many` compares: more than 1 is quicker than COPY.

    url: of a migrated database, as the owner of its tables; its jobs are deleted.
    """
    rows: list[Row] = [("invoice.count", {"month": "2026-10", "invoice": number}, str(number % 100)) for number in range(jobs)]
    ways = {"copy": _copy, "enqueue_many": _enqueue_many}
    took: dict[str, list[float]] = {name: [] for name in ways}
    with psycopg.connect(url, autocommit=True) as conn:
        for number in range(rounds):
            # Whoever is first in one round is second in the next.
            for name in sorted(ways, reverse=bool(number % 2)):
                took[name].append(_timed(conn, ways[name], rows))
        for text in EMPTY:
            conn.execute(text)
    medians = {name: median(times) for name, times in took.items()}
    return {
        "jobs": jobs,
        "seconds": took,
        "jobs_per_second": {name: jobs / seconds for name, seconds in medians.items()},
        "ratio": medians["copy"] / medians["enqueue_many"],
    }


def _timed(conn: Connection[Any], way: Callable[[Connection[Any], list[Row]], None], rows: list[Row]) -> float:
    for text in EMPTY:
        conn.execute(text)
    started = time.perf_counter()
    with conn.transaction():
        way(conn, rows)
    return time.perf_counter() - started


def _copy(conn: Connection[Any], rows: list[Row]) -> None:
    with conn.cursor() as cursor, cursor.copy(COPY) as copy:
        for kind, payload, tenant in rows:
            copy.write_row((kind, json.dumps(payload), tenant))


def _enqueue_many(conn: Connection[Any], rows: list[Row]) -> None:
    ids = enqueue_many(conn, (NewJob(kind, payload, tenant=tenant) for kind, payload, tenant in rows))
    assert len(ids) == len(rows)
