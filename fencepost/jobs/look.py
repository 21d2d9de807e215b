"""Look how much work waits, and how leases stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from psycopg import AsyncConnection

from fencepost.jobs.sql import statement
from fencepost.jobs.sweep import Lease


@dataclass(frozen=True, slots=True)
class Work:
    """What could be run: jobs of `queues` (`*` is all) and `kinds`, counted no further than there are `idle` workers."""

    queues: Sequence[str]
    kinds: Sequence[str]
    idle: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """How many due jobs wait, counted no further than asked; and seconds until the next one is due, if any is."""

    due: int
    next_due_in: float | None


@dataclass(frozen=True, slots=True)
class Asked:
    """Which leases are to be read.

    Those of `ids`, and those of all runs that began after `mark` and are `age` old by now; without a mark those of all runs.
    """

    mark: datetime | None
    age: timedelta
    ids: list[int]


@dataclass(frozen=True, slots=True)
class Read:
    """What was read: the server's time, the next mark, and the leases that there are."""

    at: datetime
    mark: datetime
    leases: list[Lease]


NO_WORK = Work([], [], 0)
NO_LEASES = Asked(None, timedelta(), [])


async def look(conn: AsyncConnection[Any], schema: str, work: Work | None, asked: Asked | None) -> tuple[Waiting, Read]:
    """Look for both in one statement; None leaves one out. Leases of runs that have ended are not there any more."""
    wanted, of = work or NO_WORK, asked or NO_LEASES
    cursor = await conn.execute(
        statement("look", schema),
        {
            "queues": list(wanted.queues),
            "kinds": list(wanted.kinds),
            "idle": wanted.idle,
            "leases": asked is not None,
            "mark": of.mark,
            "age": of.age,
            "ids": of.ids,
        },
    )
    rows = await cursor.fetchall()
    due, next_due_in, at, mark, *_ = rows[0]
    return Waiting(due, next_due_in), Read(at, mark, [Lease(*row[4:]) for row in rows if row[4] is not None])
