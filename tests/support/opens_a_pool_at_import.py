"""Opens a pool of connections as it is imported, and asks it something, as applications do."""

from __future__ import annotations

import os
from typing import Any

from psycopg_pool import ConnectionPool

from fencepost import Job, handler

POOL = ConnectionPool(os.environ["DATABASE_URL"], min_size=1, max_size=1, kwargs={"application_name": "the module's pool"})

with POOL.connection() as first:
    first.execute("select 1")


@handler("asks_the_pool")
def asks_the_pool(job: Job) -> dict[str, Any]:
    """Ask five times for its own id; tell this process, and the backends of the pool and of the job's session."""
    right, backends = True, set()
    for _ in range(5):
        with POOL.connection() as conn:
            row = conn.execute("select %s::bigint, pg_backend_pid()", [job.id]).fetchone()
        assert row is not None
        right = right and row[0] == job.id
        backends.add(row[1])
    with job.transaction() as own:
        row = own.execute("select pg_backend_pid()").fetchone()
    assert row is not None
    return {"pid": os.getpid(), "right": right, "backends": sorted({*backends, row[0]})}
