"""Read how the leases of runs stand, and turn what was seen expired into queued or dead jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from psycopg import AsyncConnection

from fencepost.jobs.payload import encode
from fencepost.jobs.sql import statement

SUMMARY = "lost: its lease ran out, its supervisor was gone"


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as it was read: any change of it makes it another."""

    id: int
    fence: int
    name: str
    locked_until: datetime


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


async def read_leases(conn: AsyncConnection[Any], schema: str, asked: Asked) -> Read:
    """Return the leases that are asked for. Those of runs that have ended are not among them."""
    cursor = await conn.execute(statement("leases", schema), {"mark": asked.mark, "age": asked.age, "ids": asked.ids})
    rows = await cursor.fetchall()
    return Read(rows[0][0], rows[0][1], [Lease(*row[2:]) for row in rows if row[2] is not None])


async def sweep(conn: AsyncConnection[Any], schema: str, leases: Sequence[Lease]) -> list[Lease]:
    """Book those of `leases` that still stand as they were seen as lost, and return them."""
    cursor = await conn.execute(
        statement("sweep", schema),
        {
            "ids": [lease.id for lease in leases],
            "fences": [lease.fence for lease in leases],
            "names": [lease.name for lease in leases],
            "expired_at": [lease.locked_until for lease in leases],
            "error": encode({"message": SUMMARY}, "error"),
            "summary": SUMMARY,
        },
    )
    booked = {(row[0], row[1]) async for row in cursor if row[3]}
    return [lease for lease in leases if (lease.id, lease.fence) in booked]
