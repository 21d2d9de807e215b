"""One transaction, and an error handler that counts in another: it counts whatever raises, and nothing that dies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psycopg import Connection

from article.designs import one_transaction
from article.designs.work import Taken

FAILED = """
update jobs set
    attempts = attempts + 1,
    status = case when attempts + 1 >= max_attempts then 'dead' else 'queued' end,
    last_error = %s
where id = %s"""


def take(conn: Connection[Any], act: Callable[[Taken], None], lease: float) -> int | None:
    """Take one job, and count it if it raises."""
    seen: list[int] = []

    def watched(taken: Taken) -> None:
        seen.append(taken.id)
        act(taken)

    try:
        return one_transaction.take(conn, watched, lease)
    except Exception as error:  # noqa: BLE001  # whatever a job raises
        conn.execute(FAILED, [str(error), seen[0]])
        return seen[0]
