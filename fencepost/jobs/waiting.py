"""How much work waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from psycopg import AsyncConnection

from fencepost.jobs.sql import statement


@dataclass(frozen=True, slots=True)
class Waiting:
    """How many due jobs wait, counted no further than asked; and seconds until the next one is due, if any is."""

    due: int
    next_due_in: float | None


async def waiting(conn: AsyncConnection[Any], schema: str, queues: Sequence[str], kinds: Sequence[str], idle: int) -> Waiting:
    """Count what `idle` workers could run of `queues` (`*` is all) and `kinds`."""
    cursor = await conn.execute(statement("waiting", schema), {"queues": list(queues), "kinds": list(kinds), "idle": idle})
    return Waiting(*cast("tuple[int, float | None]", await cursor.fetchone()))
