"""Look at a job, cancel it, put it back: by hand, or by the application that enqueued it.

Invariant: all of it happens on the caller's connection, in the caller's transaction. A refusal is an answer and leaves that
transaction as it was. With `tenant`, another tenant's job is as one that is not there; in the transaction of a job that has a
tenant so is any other's, whatever is said.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.rows import dict_row, tuple_row

from fencepost.job import InvalidJob, RetryRefused, Status, UnknownJob
from fencepost.jobs.enqueue import Tenant, tenant_text
from fencepost.jobs.sql import statement
from fencepost.settings import enqueue_settings

LARGEST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as it stands in the table: its columns, by their names.

    `payload`, `result` and `progress` are what their JSON says; `result` is None unless the job is done. Moments are aware
    datetimes, `max_runtime` is None where the handler's holds, `max_attempts` until the first claim if the enqueuer did not
    say. `run_at` is when the job is, or was, due; `started_at` is the start of its last run. `locked_by` and `locked_until`
    are set while it runs. `attempts` are the runs that count, `interruptions` those that a drain ended, `fence` all of them.
    """

    id: int
    queue: str
    kind: str
    payload: Any
    tenant_id: str | None
    priority: int
    run_at: datetime
    status: Status
    attempts: int
    max_attempts: int | None
    interruptions: int
    fence: int
    locked_until: datetime | None
    locked_by: str | None
    max_runtime: timedelta | None
    unique_key: str | None
    progress: Any
    result: Any
    last_error: str | None
    cancel_requested_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


def get(conn: Connection[Any], job_id: int, *, tenant: Tenant = None) -> JobRow | None:
    """Return the job as `conn` sees it in its current transaction, or None if there is none with this id.

    tenant: whose job it must be; None for anyone's, in the transaction of a job for its own tenant's.

    Raises InvalidJob for what can't be an id, and whatever psycopg raises.
    """
    with Cursor(conn, row_factory=dict_row) as cursor:
        # Binary: how the session writes dates and durations must not matter.
        cursor.execute(statement("get", enqueue_settings().schema), _arguments(job_id, tenant), binary=True)
        return _job_row(cursor.fetchone())


async def aget(conn: AsyncConnection[Any], job_id: int, *, tenant: Tenant = None) -> JobRow | None:
    """Return the job, on an AsyncConnection; as `get` otherwise."""
    async with AsyncCursor(conn, row_factory=dict_row) as cursor:
        await cursor.execute(statement("get", enqueue_settings().schema), _arguments(job_id, tenant), binary=True)
        return _job_row(await cursor.fetchone())


def cancel(conn: Connection[Any], job_id: int, *, tenant: Tenant = None) -> Status:
    """Cancel a job on `conn`, in its current transaction, and return the job's status afterwards.

    cancelled: it was queued, and will not run; or it was cancelled already.
    running: it is asked to stop when the transaction commits, and killed if it does not. It is cancelled when its run has
        ended, unless its handler returned: then it is done. Commit soon: until then the run can't finish, nor keep its lease.
    done, dead: it had ended before, and stays as it is.

    tenant: as for `get`.

    Raises UnknownJob if there is no such job, InvalidJob for what can't be an id, and whatever psycopg raises.
    """
    with Cursor(conn, row_factory=tuple_row) as cursor:
        cursor.execute(statement("cancel", enqueue_settings().schema), _arguments(job_id, tenant))
        return _cancelled(job_id, cursor.fetchone())


async def acancel(conn: AsyncConnection[Any], job_id: int, *, tenant: Tenant = None) -> Status:
    """Cancel a job on an AsyncConnection; as `cancel` otherwise."""
    async with AsyncCursor(conn, row_factory=tuple_row) as cursor:
        await cursor.execute(statement("cancel", enqueue_settings().schema), _arguments(job_id, tenant))
        return _cancelled(job_id, await cursor.fetchone())


def retry(conn: Connection[Any], job_id: int, *, tenant: Tenant = None) -> None:
    """Queue a dead or cancelled job again, on `conn`, in its current transaction: due at once, with a fresh budget.

    A job that is queued stays as it is. `tenant` is as for `get`. Raises RetryRefused for one that is running or done, or whose
    unique key another queued or running job has; UnknownJob if there is no such job; InvalidJob for what can't be an id; and
    whatever psycopg raises. A refusal leaves the transaction usable. Commit soon, also then: until then a run of the job can't
    finish.
    """
    with Cursor(conn, row_factory=tuple_row) as cursor:
        cursor.execute(statement("retry", enqueue_settings().schema), _arguments(job_id, tenant))
        _retried(cursor.fetchone())


async def aretry(conn: AsyncConnection[Any], job_id: int, *, tenant: Tenant = None) -> None:
    """Queue a dead or cancelled job again, on an AsyncConnection; as `retry` otherwise."""
    async with AsyncCursor(conn, row_factory=tuple_row) as cursor:
        await cursor.execute(statement("retry", enqueue_settings().schema), _arguments(job_id, tenant))
        _retried(await cursor.fetchone())


def _arguments(job_id: int, tenant: Tenant) -> dict[str, Any]:
    if not isinstance(job_id, int) or isinstance(job_id, bool) or not 1 <= job_id <= LARGEST_ID:
        raise InvalidJob(f"a job's id is an int from 1 to {LARGEST_ID}, not {job_id!r:.100}")
    return {"id": job_id, "tenant": tenant_text(tenant)}


def _job_row(row: dict[str, Any] | None) -> JobRow | None:
    if row is None:
        return None
    for name in ("payload", "progress", "result"):
        row[name] = None if row[name] is None else json.loads(row[name])
    return JobRow(**row)


def _cancelled(job_id: int, row: tuple[Any, ...] | None) -> Status:
    (status,) = cast("tuple[Status | None]", row)
    if status is None:
        raise UnknownJob(f"there is no job {job_id}")
    return status


def _retried(row: tuple[Any, ...] | None) -> None:
    status, refused = cast("tuple[Status | None, str | None]", row)
    if refused is not None:
        raise UnknownJob(refused) if status is None else RetryRefused(refused)
