"""Turn leases that were seen expired into queued or dead jobs."""

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
class Lease:
    """A lease as it was read: any change of it makes it another."""

    id: int
    fence: int
    name: str
    locked_until: datetime


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
