"""Leased, and finished only where the row still carries the claimed attempt: a late finish touches no row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psycopg import Connection

from article.designs import leased
from article.designs.work import Taken

FINISH = (
    "update jobs set status = 'done', locked_until = null where id = %(id)s and attempts = %(attempt)s and status = 'running'"
)


def take(conn: Connection[Any], act: Callable[[Taken], None], lease: float) -> int | None:
    """Take one job, under its fence."""
    return leased.take(conn, act, lease, FINISH)
