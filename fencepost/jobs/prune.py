"""Delete jobs that are done or cancelled and have been kept for long enough."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

from psycopg import AsyncConnection

from fencepost.jobs.sql import statement


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many jobs a step found `ripe`, old enough, and how many it `deleted` of that: the rest was locked.

    `mark` is the id behind which the next step goes on; `ended`, that nothing behind it can be old enough yet. `took` is how
    many seconds the server was at it.
    """

    mark: int
    ripe: int
    deleted: int
    ended: bool
    took: float


async def prune(conn: AsyncConnection[Any], schema: str, *, age: timedelta, mark: int, span: int, most: int) -> Pruned:
    """Delete what came to rest longer than `age` ago, of the `span` ids behind `mark` and of at most `most` jobs."""
    cursor = await conn.execute(statement("prune", schema), {"age": age, "mark": mark, "span": span, "most": most})
    return Pruned(*cast("tuple[int, int, int, bool, float]", await cursor.fetchone()))
