"""Sessions on the server: who has some, and their end."""

from __future__ import annotations

from typing import Any, cast

from psycopg import AsyncConnection, Connection

from fencepost.jobs.pooler import AsyncPooledConnection, PooledConnection
from fencepost.jobs.sql import statement


def end_sessions(conn: Connection[Any], schema: str, application: str) -> int:
    """End the other sessions called `application`, and return how many there still were.

    Behind a pooler sessions are anybody's: none is ended, and what is counted are the transactions that it still has open.
    """
    verb = "marked" if isinstance(conn, PooledConnection) else "end_sessions"
    row = conn.execute(statement(verb, schema), {"application": application}).fetchone()
    return int(cast("tuple[int]", row)[0])


async def aend_sessions(conn: AsyncConnection[Any], schema: str, application: str) -> int:
    """End the other sessions called `application`, as `end_sessions`."""
    verb = "marked" if isinstance(conn, AsyncPooledConnection) else "end_sessions"
    cursor = await conn.execute(statement(verb, schema), {"application": application})
    return int(cast("tuple[int]", await cursor.fetchone())[0])
