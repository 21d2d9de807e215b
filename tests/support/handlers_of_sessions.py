"""Handlers for what jobs do with sessions, the one they are given and others, and for how their runs end in turn."""

from __future__ import annotations

import itertools
import os
import select
import signal
import threading
import time

import psycopg
from handlers_for_tests import insert_row, mark, marked

from fencepost import Job, handler


@handler("rests")
def rests(job: Job, *, seconds: float) -> None:
    """Sleep, without a mark: a session less."""
    time.sleep(seconds)


@marked("rests_by_select")
def rests_by_select(job: Job, *, seconds: float) -> None:
    """Sleep as libfaketime lets one: under it, time.sleep fails."""
    select.select([], [], [], seconds)


@handler("rests_in_a_transaction")
def rests_in_a_transaction(job: Job, *, seconds: float) -> None:
    """Write a row, and sleep before the commit."""
    with job.transaction() as conn:
        insert_row(conn, job)
        time.sleep(seconds)


@marked("holds_a_lock_at_first")
def holds_a_lock_at_first(job: Job, *, seconds: float = 60.0) -> None:
    """Lock something of the job's own and write a row; the first time, sleep before the commit."""
    with job.transaction() as conn:
        conn.execute("select pg_advisory_xact_lock(%s)", [job.id])
        insert_row(conn, job)
        mark(job, "locked")
        if job.attempt == 1:
            time.sleep(seconds)


@handler("writes_before_and_when_told")
def writes_before_and_when_told(job: Job, *, path: str) -> None:
    """Write a row in a transaction, and another one in a second transaction, once there is a file."""
    with job.transaction() as conn:
        insert_row(conn, job, "before")
    while not os.path.exists(path):
        time.sleep(0.02)
    with job.transaction() as conn:
        insert_row(conn, job, "told")


@handler("reads_notes")
def reads_notes(job: Job) -> int:
    """Return how many columns a table has, read often enough for a plan to be kept."""
    with job.transaction() as conn:
        rows = [conn.execute("select * from test.notes where id = %s", [job.id % 3]).fetchone() for _ in range(10)]
    assert rows[0] is not None
    return len(rows[0])


@handler("changes_its_search_path")
def changes_its_search_path(job: Job) -> None:
    """Have names mean something else, for the session and not only for the transaction."""
    with job.transaction() as conn:
        conn.execute("set search_path = test, pg_temp")


@marked("begins_in_many_threads")
def begins_in_many_threads(job: Job, *, seconds: float) -> list[str]:
    """Open as many transactions as there are to be had, from five threads, and keep them; return what was refused."""
    refused: list[str] = []
    over = threading.Event()

    def begin() -> None:
        try:
            with job.transaction():
                over.wait()
        except Exception as error:  # noqa: BLE001  # told by its text
            refused.append(str(error))

    threads = [threading.Thread(target=begin) for _ in range(5)]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    over.set()
    for thread in threads:
        thread.join()
    return refused


@marked("ends_in_every_way")
def ends_in_every_way(job: Job, *, well: bool) -> None:
    """Kill the process, then raise, then hang, then return or raise."""
    match job.attempt:
        case 1:
            os.kill(os.getpid(), signal.SIGKILL)
        case 2:
            raise ValueError("the second")
        case 3:
            sum(itertools.repeat(1, 10**12))
    if not well:
        raise LookupError("the fourth")


@handler("holds_rows_on_the_server")
def holds_rows_on_the_server(job: Job, *, row: int, own: bool) -> None:
    """Change a row and sleep on the server in a thread, on our connection or on one of its own; then hang in C."""

    def change_and_sleep() -> None:
        text = f"update test.rows set note = 'late' where job = {row:d}; select pg_sleep(119)"
        if own:
            with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as conn:
                conn.execute(text)
        with job.transaction() as conn:
            conn.execute(text)

    threading.Thread(target=change_and_sleep, daemon=True).start()
    time.sleep(0.3)
    sum(itertools.repeat(1, 10**12))
