"""Claim, work and finish in one transaction.

A worker that dies gives its job back by itself. That is all there is to it: whatever is counted is rolled back with the rest.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from psycopg import Connection

from article.designs.work import Taken

CLAIM = "select id, kind from jobs where status = 'queued' order by id limit 1 for update skip locked"
STARTED = "insert into job_runs (job_id, worker, attempt, started) values (%s, %s, 1, clock_timestamp())"
FINISH = """
with run as (update job_runs set finished = clock_timestamp() where job_id = %(id)s)
update jobs set status = 'done' where id = %(id)s"""


def take(conn: Connection[Any], act: Callable[[Taken], None], lease: float) -> int | None:  # noqa: ARG001  # it has no lease
    """Take one job and see it through; return its id, if there was one. What the job raises, this raises."""
    with conn.transaction():
        row = conn.execute(CLAIM).fetchone()
        if row is None:
            return None
        taken = Taken(row[0], row[1], attempt=1)
        conn.execute(STARTED, [taken.id, os.getpid()])
        act(taken)
        conn.execute(FINISH, {"id": taken.id})
        return taken.id
