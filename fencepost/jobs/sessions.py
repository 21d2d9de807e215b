"""Sessions on the server: who has some, and their end."""

from __future__ import annotations

from typing import Any, cast

from psycopg import AsyncConnection, Connection

from fencepost.jobs.sql import statement


def end_sessions(conn: Connection[Any], schema: str, application: str) -> int:
    """End the other sessions called `application`, and return how many there still were."""
    row = conn.execute(statement("end_sessions", schema), {"application": application}).fetchone()
    return int(cast("tuple[int]", row)[0])


async def aend_sessions(conn: AsyncConnection[Any], schema: str, application: str) -> int:
    """End the other sessions called `application`, as `end_sessions`."""
    cursor = await conn.execute(statement("end_sessions", schema), {"application": application})
    return int(cast("tuple[int]", await cursor.fetchone())[0])
