"""The claim is committed first, with its attempt and a lease. Who finishes last has the last word: there is no fence.

A job whose lease is over is claimed again while it has attempts left. After its last one it stays `running` for no one, until
a sweep marks it dead.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from psycopg import Connection

from article.designs.work import Lost, Taken

CLAIM = """
update jobs set
    status = 'running', attempts = attempts + 1, locked_until = clock_timestamp() + %s * interval '1 second'
where id = (
    select id from jobs
    where (status = 'queued' or (status = 'running' and locked_until < clock_timestamp())) and attempts < max_attempts
    order by id limit 1 for update skip locked
)
returning id, kind, attempts, clock_timestamp()"""
RAN = "insert into job_runs values (%s, %s, %s, %s, clock_timestamp())"
WROTE = "insert into written values (%s, %s)"
FINISH = "update jobs set status = 'done', locked_until = null where id = %(id)s"
FAILED = """
update jobs set
    status = case when attempts >= max_attempts then 'dead' else 'queued' end, locked_until = null, last_error = %s
where id = %s"""
SWEEP = """
update jobs set status = 'dead', locked_until = null, last_error = 'its lease ran out'
where status = 'running' and locked_until < clock_timestamp() and attempts >= max_attempts"""


def take(conn: Connection[Any], act: Callable[[Taken], None], lease: float, finish: str = FINISH) -> int | None:
    """Take one job; return its id, if there was one. Raises Lost where the finish touches no row."""
    row = conn.execute(CLAIM, [lease]).fetchone()
    if row is None:
        return None
    taken, started = Taken(*row[:3]), row[3]
    try:
        act(taken)
    except Exception as error:  # noqa: BLE001  # whatever a job raises
        conn.execute(FAILED, [str(error), taken.id])
        return taken.id
    with conn.transaction():
        conn.execute(RAN, [taken.id, os.getpid(), taken.attempt, started])
        conn.execute(WROTE, [taken.id, taken.attempt])
        if conn.execute(finish, {"id": taken.id, "attempt": taken.attempt}).rowcount == 0:
            raise Lost(f"job {taken.id} is no longer in its attempt {taken.attempt}")
    return taken.id


def sweep(conn: Connection[Any]) -> int:
    """Mark dead what has no attempt left and no lease; return how many that were."""
    return conn.execute(SWEEP).rowcount
