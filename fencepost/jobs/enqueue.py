"""Put a job into the caller's own transaction.

Invariant: the job exists if and only if that transaction commits; nothing here commits, and nothing else is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from typing import Any, cast
from uuid import UUID

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.rows import tuple_row

from fencepost.handlers import find, kind_of
from fencepost.job import InvalidJob, as_timedelta
from fencepost.jobs.payload import NotJson, encode
from fencepost.jobs.sql import statement
from fencepost.settings import enqueue_settings

Kind = str | Callable[..., Any]
Tenant = int | str | UUID | None


class Own(Enum):
    """In place of a tenant that was not given: that of the job which enqueues, if it is one."""

    tenant = auto()


# Not frozen: to make one would take three times as long, and a bulk is made of many.
@dataclass(slots=True)
class NewJob:
    """A job to be, for `enqueue_many`. Its fields are the arguments of `enqueue`, and are looked at as it is enqueued."""

    kind: Kind
    payload: Mapping[str, Any] | None = None
    _: KW_ONLY
    tenant: Tenant | Own = Own.tenant
    queue: str | None = None
    priority: int = 0
    run_at: datetime | None = None
    after: float | timedelta | None = None
    max_attempts: int | None = None
    max_runtime: float | timedelta | None = None
    unique_key: str | None = None


# What the table's checks take.
FIRST_MOMENT = datetime(1, 1, 2, tzinfo=UTC)
LAST_MOMENT = datetime(9999, 12, 31, tzinfo=UTC)
LONGEST_WAIT = timedelta(days=36_500)
MOST_RUNTIME = timedelta(days=10_000)


def enqueue(
    conn: Connection[Any],
    kind: Kind,
    payload: Mapping[str, Any] | None = None,
    *,
    tenant: Tenant | Own = Own.tenant,
    queue: str | None = None,
    priority: int = 0,
    run_at: datetime | None = None,
    after: float | timedelta | None = None,
    max_attempts: int | None = None,
    max_runtime: float | timedelta | None = None,
    unique_key: str | None = None,
) -> int:
    """Enqueue a job on `conn`, in its current transaction, and return the job's id.

    kind: the handler's name, or the decorated function.
    payload: keyword arguments for the handler: a dict of what JSON has, that arrives equal.
    tenant: whose job it is. Needed, unless the handler is tenantless or tenants are switched off. A job that enqueues another
        in its transaction need not say it: then it is its own. None says that the job has none.
    priority: lower runs first.
    run_at, after: when it is due, as an aware datetime, or in seconds (or a timedelta) from now. Give one of them.
    max_attempts, max_runtime: for this job, in place of the handler's.
    unique_key: if a queued or running job of the tenant has the key, that one's id comes back and nothing is enqueued.

    Raises InvalidJob for what can't be enqueued, and whatever psycopg raises.
    """
    job = NewJob(
        kind, payload, tenant=tenant, queue=queue, priority=priority, run_at=run_at, after=after,
        max_attempts=max_attempts, max_runtime=max_runtime, unique_key=unique_key,
    )  # fmt: skip
    arguments = arguments_of(job, job_tenant(conn) or Own.tenant)
    # Whatever kind of cursor and row the connection gives by itself.
    with Cursor(conn, row_factory=tuple_row) as cursor:
        cursor.execute(statement("enqueue", enqueue_settings().schema), arguments)
        return _id(cursor.fetchone(), arguments["kind"])


async def aenqueue(
    conn: AsyncConnection[Any],
    kind: Kind,
    payload: Mapping[str, Any] | None = None,
    *,
    tenant: Tenant | Own = Own.tenant,
    queue: str | None = None,
    priority: int = 0,
    run_at: datetime | None = None,
    after: float | timedelta | None = None,
    max_attempts: int | None = None,
    max_runtime: float | timedelta | None = None,
    unique_key: str | None = None,
) -> int:
    """Enqueue a job on an AsyncConnection; as `enqueue` otherwise."""
    job = NewJob(
        kind, payload, tenant=tenant, queue=queue, priority=priority, run_at=run_at, after=after,
        max_attempts=max_attempts, max_runtime=max_runtime, unique_key=unique_key,
    )  # fmt: skip
    arguments = arguments_of(job, job_tenant(conn) or Own.tenant)
    async with AsyncCursor(conn, row_factory=tuple_row) as cursor:
        await cursor.execute(statement("enqueue", enqueue_settings().schema), arguments)
        return _id(await cursor.fetchone(), arguments["kind"])


def job_tenant(conn: Connection[Any] | AsyncConnection[Any]) -> str | None:
    """Return the tenant of the job whose connection this is; None where the server alone knows: on one that a job has bound."""
    tenant: str | None = getattr(conn, "job_tenant", None)
    return tenant


def arguments_of(job: NewJob, own: str | Own | None) -> dict[str, Any]:
    """Return what the table is given for a job that is enqueued in a job of the tenant `own`.

    Raises InvalidJob, and UnknownHandler for a function that is no handler.
    """
    name = job.kind if isinstance(job.kind, str) else kind_of(job.kind)
    _need_text("kind", name, 256)
    text = payload_text(job.payload)
    if job.queue is not None:
        _need_text("queue", job.queue, 128)
    if job.unique_key is not None:
        _need_text("unique_key", job.unique_key, 1024)
    _need_int("priority", job.priority, -(2**31))
    if job.max_attempts is not None:
        _need_int("max_attempts", job.max_attempts, 1)
    if job.run_at is not None and job.after is not None:
        raise InvalidJob("give run_at or after, not both")
    if job.run_at is not None:
        _need_moment(job.run_at)
    delay = None if job.after is None else _duration("after", job.after)
    whose = own if isinstance(job.tenant, Own) else job.tenant
    known = find(name)
    needed = known is not None and not known.tenantless and bool(enqueue_settings().tenant_setting)
    if needed and whose is None:
        raise _needs_a_tenant(name)
    limit = None if job.max_runtime is None else _duration("max_runtime", job.max_runtime)
    if limit is not None and not timedelta(0) < limit < MOST_RUNTIME:
        raise InvalidJob(f"max_runtime must be more than 0, and less than {MOST_RUNTIME.days} days")
    return {
        "kind": name,
        "payload": text,
        "tenant": None if isinstance(whose, Own) else tenant_text(whose),
        "inherit": isinstance(whose, Own),
        "needed": needed,
        "queue": job.queue,
        "priority": job.priority,
        "run_at": job.run_at,
        "after": delay,
        "max_attempts": job.max_attempts,
        "max_runtime": limit,
        "unique_key": job.unique_key,
    }


def payload_text(payload: Mapping[str, Any] | None) -> str:
    """Return a payload as the table keeps it, JSON text. Raises InvalidJob for what would not arrive equal."""
    if payload is not None and not isinstance(payload, dict):
        raise InvalidJob(f"the payload must be a dict of keyword arguments, not {type(payload).__name__}")
    try:
        return encode({} if payload is None else payload, "payload")
    except NotJson as error:
        raise InvalidJob(str(error)) from None


def tenant_text(tenant: Tenant) -> str | None:
    """Return a tenant as the table keeps it. Raises InvalidJob for what is none."""
    match tenant:
        case str():
            if not tenant.strip():
                raise InvalidJob("the tenant is blank: give its id, or None for a job without tenant")
            _need_text("tenant", tenant, 256)
            return tenant
        case None:
            return None
        case bool():
            raise InvalidJob("tenant must be an int, a str or a UUID, not a bool")
        case int() | UUID():
            return str(tenant)
        case _:
            raise InvalidJob(f"tenant must be an int, a str or a UUID, not a {type(tenant).__name__}")


def _need_int(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**31:
        raise InvalidJob(f"{name} must be an int from {least} to {2**31 - 1}, not {value!r}")


def _need_moment(run_at: object) -> None:
    if not isinstance(run_at, datetime):
        raise InvalidJob(f"run_at must be a datetime, not a {type(run_at).__name__}")
    if run_at.tzinfo is None:
        raise InvalidJob("run_at must have a time zone: a naive datetime means another moment on every machine")
    if not FIRST_MOMENT <= run_at < LAST_MOMENT:
        raise InvalidJob(f"run_at must lie between {FIRST_MOMENT:%Y-%m-%d} and {LAST_MOMENT:%Y-%m-%d}, not be {run_at}")


def _duration(name: str, value: float | timedelta) -> timedelta:
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
        raise InvalidJob(f"{name} must be seconds or a timedelta, not a {type(value).__name__}")
    try:
        duration = as_timedelta(value)
    except ValueError as error:
        raise InvalidJob(f"{name}: {error}") from None
    if duration > LONGEST_WAIT:
        raise InvalidJob(f"{name} must be at most {LONGEST_WAIT.days} days")
    return duration


def _needs_a_tenant(kind: str) -> InvalidJob:
    return InvalidJob(f"a job of kind {kind!r} needs a tenant: give tenant=…, or say tenantless=True in its handler")


def _id(row: tuple[Any, ...] | None, kind: str) -> int:
    (job_id,) = cast("tuple[int | None]", row)
    if job_id is None:
        raise _needs_a_tenant(kind)
    return job_id


def _need_text(name: str, value: str, limit: int) -> None:
    if not isinstance(value, str) or not value or "\0" in value:
        raise InvalidJob(f"{name} must be a text that is not empty and holds no NUL character")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidJob(f"{name} holds half of a surrogate pair, which is no text") from None
    if size > limit:
        raise InvalidJob(f"{name} is {size} bytes long, and may be {limit}")
