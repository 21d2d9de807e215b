"""Where the tenant is set: for the session, in a transaction or in autocommit, or locally in the job's transaction.

Each is a job on a pooled connection: it sets its tenant, counts the invoices that it sees, and raises if it is to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psycopg import Connection
from psycopg_pool import ConnectionPool

SET = "select set_config('app.tenant', %s, %s)"
COUNT = "select count(*) from invoices"

Pool = ConnectionPool[Connection[Any]]


class Failed(Exception):
    """A job that fails."""


def _job(pool: Pool, tenant: int, *, local: bool, fails: bool) -> int:
    with pool.connection() as conn:
        conn.execute(SET, [str(tenant), local])
        seen = count(conn)
        if fails:
            raise Failed
    return seen


def count(conn: Connection[Any]) -> int:
    """Count what can be seen."""
    row = conn.execute(COUNT).fetchone()
    return int(row[0]) if row else 0


def for_the_session(pool: Pool, tenant: int, *, fails: bool = False) -> int:
    """Set it for the session. In autocommit each statement stands alone; else a commit keeps what was set."""
    return _job(pool, tenant, local=False, fails=fails)


def locally(pool: Pool, tenant: int, *, fails: bool = False) -> int:
    """Set it for the transaction, whose end takes it back."""
    return _job(pool, tenant, local=True, fails=fails)


DESIGNS: dict[str, tuple[Callable[..., int], bool]] = {
    "session setting": (for_the_session, False),
    "session setting, autocommit": (for_the_session, True),
    "local setting": (locally, False),
}
"""By name: the job, and whether its connections are in autocommit."""
