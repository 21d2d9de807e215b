"""Handlers that use every statement of a worker. They leave no marks: those go by sessions of their own."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from handlers_for_tests import insert_row

from fencepost import Job, handler
from fencepost.worker.lanes import WHILE_BUSY


@handler("notes", max_attempts=9)
def notes(job: Job) -> None:
    """Write a row in a transaction, and another in the next."""
    for note in ("first", "second"):
        with job.transaction() as conn:
            insert_row(conn, job, note)


@handler("notes_awaited", max_attempts=9)
async def notes_awaited(job: Job) -> None:
    """Write a row in a coroutine's transaction."""
    async with job.transaction() as conn:
        await conn.execute("insert into test.rows (job, attempt) values (%s, %s)", (job.id, job.attempt))


@handler("notes_once", max_attempts=9, transaction=True)
def notes_once(job: Job) -> None:
    """Write a row in the one transaction that also finishes the job."""
    insert_row(job.conn, job)


@handler("takes_longer", max_attempts=9)
def takes_longer(_job: Job) -> None:
    """Run until it is time to look at the whole queue again: such a run is finished without the next claim."""
    time.sleep(WHILE_BUSY + 0.1)


@handler("rolls_back", max_attempts=1)
def rolls_back(job: Job) -> None:
    """Write a row, and raise."""
    with job.transaction() as conn:
        insert_row(conn, job)
        raise ValueError("on purpose")


@handler("dies", max_attempts=1)
def dies(job: Job) -> None:
    """Kill its process."""
    os.kill(os.getpid(), signal.SIGKILL)


@handler("waits_for_a_file", max_attempts=1, max_runtime=3600)
def waits_for_a_file(job: Job, *, path: str) -> None:
    """Return once the file is there."""
    while not Path(path).exists():
        time.sleep(0.02)
