"""Handlers for what jobs leave in sessions that are not theirs alone, and for what they find there."""

from __future__ import annotations

import os
import time
from typing import Any

import psycopg
from handlers_for_tests import insert_row, mark, marked
from left_in_sessions import FOUND, LEFT

from fencepost import Job, handler


@handler("leaves_its_session")
def leaves_its_session(job: Job, *, role: str, raises: bool = False) -> None:
    """Leave all that a transaction can leave in its session; raise before its end, or not."""
    with job.transaction() as conn:
        conn.execute(f"{LEFT} set role {role}")
        if raises:
            raise ValueError("on purpose")


@handler("leaves_its_session_once", transaction=True)
def leaves_its_session_once(job: Job, *, role: str) -> None:
    """Leave all that a transaction can leave in its session, in the one that also finishes the job."""
    job.conn.execute(f"{LEFT} set role {role}")


@handler("leaves_its_session_async")
async def leaves_its_session_async(job: Job, *, role: str, raises: bool = False) -> None:
    """Leave all that a transaction can leave in its session, in a coroutine."""
    async with job.transaction() as conn:
        await conn.execute(f"{LEFT} set role {role}")
        if raises:
            raise ValueError("on purpose")


@handler("tells_its_session")
def tells_its_session(job: Job) -> dict[str, Any]:
    """Return what is in the session that should not be, and how it writes dates and durations."""
    with job.transaction() as conn:
        found = [what for (what,) in conn.execute(FOUND, {"tenant": job.tenant})]
        styles = conn.execute("select current_setting('datestyle') || ', ' || current_setting('intervalstyle')").fetchone()
        level = conn.execute("show transaction_isolation").fetchone()
        for _ in range(10):
            conn.execute("select %s::int", [job.id])
    assert styles is not None
    assert level is not None
    return {"found": found, "styles": styles[0], "level": level[0]}


@marked("waits_on_the_server")
def waits_on_the_server(job: Job, *, seconds: float) -> int:
    """Write a row, and the first time wait in a statement that does not look after its client; return how many others do so."""
    with job.transaction() as conn:
        others = conn.execute(
            "select count(*) from pg_stat_activity where query like '/* slowly%' and pid <> pg_backend_pid()"
            " and state = 'active'"
        ).fetchone()
        insert_row(conn, job)
        if job.attempt == 1:
            conn.execute("set local client_connection_check_interval = 0")
            conn.execute("/* slowly */ select pg_sleep(%s)", [seconds])
    assert others is not None
    return int(others[0])


@handler("asks_much")
def asks_much(job: Job) -> int:
    """Execute one query ten times, on our connection; return how many statements are prepared there."""
    with job.transaction() as conn:
        for number in range(10):
            conn.execute("select %s::int + 1", [number])
        row = conn.execute("select count(*) from pg_prepared_statements where name <> ''").fetchone()
    assert row is not None
    return int(row[0])


@marked("rests_in_its_one_transaction", transaction=True)
def rests_in_its_one_transaction(job: Job, *, seconds: float) -> None:
    """Write a row, and the first time sleep before the commit."""
    insert_row(job.conn, job)
    mark(job, "written")
    if job.attempt == 1:
        time.sleep(seconds)


@handler("opens_its_own")
def opens_its_own(job: Job) -> str:
    """Return how a connection of the job's own is called."""
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as conn:
        row = conn.execute("show application_name").fetchone()
    assert row is not None
    return str(row[0])
