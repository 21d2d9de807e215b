"""The rows of living supervisors."""

from __future__ import annotations

from typing import Any, cast

from psycopg import AsyncConnection

from fencepost.jobs.sql import statement


async def register(conn: AsyncConnection[Any], schema: str, row: dict[str, Any]) -> bool:
    """Write a supervisor's row, and return whether it was not there."""
    (is_new,) = cast("tuple[bool]", await (await conn.execute(statement("register", schema), row)).fetchone())
    return is_new


async def deregister(conn: AsyncConnection[Any], schema: str, name: str) -> None:
    """Remove a supervisor's row, and those of supervisors that left without a word."""
    await conn.execute(statement("deregister", schema), {"name": name})


async def notify(conn: AsyncConnection[Any], schema: str, channel: str) -> None:
    """Send a notification on `channel`, by which a supervisor finds out whether it hears of them."""
    await conn.execute(statement("notify", schema), {"channel": channel})
