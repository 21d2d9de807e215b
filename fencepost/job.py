"""A job as its handler sees it, and the words for how a run ends.

Light on purpose: imported by whoever enqueues, by handlers, and by the worker that runs them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol
from uuid import NAMESPACE_OID, UUID, uuid5

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg import AsyncConnection, Connection

StopReason = Literal["max_runtime", "drain", "cancel", "lease"]

Status = Literal["queued", "running", "done", "dead", "cancelled"]
"""Where a job stands. The last three are at rest."""


class Ended(StrEnum):
    """How a run ended: the `outcome` of its row in `job_runs`."""

    done = "done"
    failed = "failed"
    crashed = "crashed"
    overran = "overran"
    lost = "lost"
    interrupted = "interrupted"
    snoozed = "snoozed"
    cancelled = "cancelled"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a finish writes.

    `wait` is the time to the next attempt (failed, crashed, overran, snoozed); `final` allows no further one. `result` is
    JSON text. `error` is what `job_runs` keeps, `summary` the line that `jobs.last_error` keeps. `max_rss` is in bytes.
    """

    ended: Ended
    wait: timedelta = timedelta(0)
    final: bool = False
    result: str | None = None
    error: dict[str, Any] | None = None
    summary: str | None = None
    stack: str | None = None
    max_rss: int | None = None


class JobError(Exception):
    """Something that Fencepost refuses to a job, or to whoever enqueues or handles one. Its text says what to do."""


class InvalidJob(JobError, ValueError):
    """This can't be enqueued: its text names the argument and what would be right."""


class UnknownJob(JobError, LookupError):
    """There is no job with this id. Was its enqueuer's transaction rolled back?"""


class RetryRefused(JobError):
    """This job can't be queued again: its text says whether it is running, done, or has the unique key of another job."""


class UnknownHandler(JobError):
    """No handler has this name. Is its module listed in FENCEPOST_HANDLERS?"""


class TransactionEnded(JobError):
    """The job ended its own transaction (commit, rollback or close): leave the `with` block instead.

    What was committed so stays committed, without the fence; the run is failed.
    """


class Retry(Exception):
    """Raise to end this run as failed, and to say when the next attempt is due. The attempt is counted.

    `after` is in seconds or a timedelta; without it the handler's own wait applies.
    """

    def __init__(self, reason: str = "", *, after: float | timedelta | None = None) -> None:
        super().__init__(reason or "retry asked for")
        self.after = None if after is None else as_timedelta(after)


class Snooze(Exception):
    """Raise to put the job back for `after` seconds (or a timedelta). The attempt is not counted."""

    def __init__(self, after: float | timedelta) -> None:
        self.after = as_timedelta(after)
        super().__init__(f"snoozed for {self.after}")


class GiveUp(Exception):
    """Raise to end the job as dead at once, whatever is left of its attempts."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class Cancel(Exception):
    """Raise to end the job as cancelled."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class Stopped(BaseException):
    """The run is asked to stop; it is killed if it does not within FENCEPOST_KILL_GRACE.

    A BaseException, so that `except Exception` does not swallow it. `reason` is `max_runtime`, `drain` or `cancel`.
    A run that has lost its lease gets `lease`: nothing it still writes here counts.
    """

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason)
        self.reason: StopReason = reason


def as_timedelta(duration: float | timedelta) -> timedelta:
    """Return a duration given in seconds or as a timedelta as the latter.

    Raises ValueError if it is negative, or not finite.
    """
    try:
        delta = duration if isinstance(duration, timedelta) else timedelta(seconds=duration)
    except (OverflowError, ValueError) as error:
        raise ValueError(f"a duration must be finite, not {duration}") from error
    if delta < timedelta(0):
        raise ValueError(f"a duration can't be negative: {duration}")
    return delta


class Transactions(Protocol):
    """What gives a job its transactions: the worker's, for this run."""

    def transaction(self) -> Transaction:
        """Return a transaction to be entered."""

    def bind(self, conn: Any) -> None:
        """Set tenant and role in the transaction of another connection."""

    async def abind(self, conn: Any) -> None:
        """Set tenant and role in the transaction of another connection."""


class Transaction(Protocol):
    """A fenced, tenant-local transaction: `with` gives a Connection, `async with` an AsyncConnection."""

    def __enter__(self) -> Connection[tuple[Any, ...]]: ...
    def __exit__(self, kind: object, error: object, trace: object, /) -> None: ...
    async def __aenter__(self) -> AsyncConnection[tuple[Any, ...]]: ...
    async def __aexit__(self, kind: object, error: object, trace: object, /) -> None: ...


@dataclass(slots=True)
class Job:
    """The job that a handler runs.

    `attempt` counts from 1; `tenant` is always a str, or None for a handler that is tenantless; `conn` is the run's one
    transaction if the handler says `transaction=True`.
    """

    id: int
    kind: str
    queue: str
    attempt: int
    max_attempts: int
    tenant: str | None
    _name: str = field(repr=False)
    _transactions: Transactions = field(repr=False)
    _report: Callable[[float, float | None], None] = field(repr=False)
    _conn: Any = field(default=None, repr=False)

    def transaction(self) -> Transaction:
        """Open a transaction with the tenant set locally, that commits only if this run still holds its job.

        Use it with `with` in a function, with `async with` in a coroutine. It may be used many times, one at a time: long
        work stands between short transactions, not in one. Raises `Stopped` (reason `lease`) where the commit is void.
        """
        return self._transactions.transaction()

    def bind(self, conn: Any) -> None:
        """Set the job's tenant and role locally in the open transaction of another connection that the job uses.

        `conn` is a Connection of psycopg's, a Connection or Session of SQLAlchemy's, or Django's `connection` (in `atomic`).
        Once in each of its transactions: with it the tenant is gone. Such a transaction commits by itself, without the fence:
        what must not be written twice, or late, belongs into `transaction()`. Raises JobError where no transaction is open.
        """
        self._transactions.bind(conn)

    async def abind(self, conn: Any) -> None:
        """Set the job's tenant and role in the transaction of an asynchronous connection; as `bind`.

        `conn` is an AsyncConnection of psycopg's, or an AsyncConnection or AsyncSession of SQLAlchemy's.
        """
        await self._transactions.abind(conn)

    @property
    def idempotency_key(self) -> UUID:
        """The same in every run of the job: give it to whatever acts in the world outside, since a run may be repeated."""
        return uuid5(NAMESPACE_OID, self._name)

    @property
    def conn(self) -> Any:
        """The run's own transaction (a psycopg Connection, or AsyncConnection for a coroutine).

        Raises JobError unless the handler says `transaction=True`.
        """
        if self._conn is None:
            raise JobError("job.conn needs @handler(…, transaction=True); otherwise use job.transaction()")
        return self._conn

    def progress(self, done: float, total: float | None = None) -> None:
        """Say how far the run is. Costs nothing: the supervisor writes it down with its next heartbeat."""
        self._report(done, total)
