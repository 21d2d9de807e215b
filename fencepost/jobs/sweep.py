"""Find expired leases, and turn what was seen expired into queued or dead jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection

from fencepost.jobs.payload import encode
from fencepost.jobs.sql import statement

SUMMARY = "lost: its lease ran out, its supervisor was gone"


@dataclass(frozen=True, slots=True)
class Expired:
    """A lease as it was seen: any change of it makes it another."""

    id: int
    fence: int
    name: str
    locked_until: datetime


async def expired(conn: AsyncConnection[Any], schema: str, mark: datetime) -> tuple[datetime, list[Expired]]:
    """Return the server's time, and the leases that ran out by then and after `mark`."""
    cursor = await conn.execute(statement("expired", schema), {"mark": mark})
    rows = await cursor.fetchall()
    return rows[0][0], [Expired(*row[1:]) for row in rows if row[1] is not None]


async def sweep(conn: AsyncConnection[Any], schema: str, leases: Sequence[Expired]) -> list[Expired]:
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
