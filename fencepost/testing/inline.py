"""Run one handler, and tell how that ended."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg.pq import TransactionStatus

from fencepost.board import Board
from fencepost.handlers import Handler, handler_of, kind_of
from fencepost.job import Ended, JobError, Outcome, Stopped
from fencepost.jobs.claim import Claim
from fencepost.jobs.enqueue import Kind, Tenant, payload_text, tenant_text
from fencepost.jobs.savepoints import Savepoints
from fencepost.jobs.transaction import Held
from fencepost.settings import Settings, read
from fencepost.start import claim_name
from fencepost.testing.caller import Caller, ainside, inside
from fencepost.worker.connection import Holder
from fencepost.worker.run import Run, job_of, missing_tenant, refused
from fencepost.worker.stop import Stop
from fencepost.worker.transactions import RunTransactions

WORKER = f"inline-{secrets.token_hex(4)}"
"""What `locked_by` and `job_runs` say of runs in this process."""

OF_JOBS = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError, Stopped, BaseExceptionGroup)
"""What a job can fail by. Anything else that is raised in it is for whoever runs the test."""

# Also the ids of jobs that have none: far from those that a test gives.
_claims = itertools.count(1_000_000_001)
_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class InlineRun:
    """One run, and how it ended.

    `outcome` is `done`, `failed`, `snoozed`, `cancelled` or `lost`, and equals that text. `result` is what the handler
    returned, as it comes back from JSON. `error` is what it raised: `raise ran.error` shows where. `summary` is the line that
    `jobs.last_error` keeps. `wait` is the time to the next attempt; `final` allows none, as after GiveUp. `status` is where
    the run has left the job in the table: None for `run`, whose job is not there.
    """

    job_id: int
    kind: str
    tenant: str | None
    attempt: int
    outcome: Ended
    result: Any = None
    error: BaseException | None = None
    summary: str | None = None
    wait: timedelta = timedelta(0)
    final: bool = False
    status: str | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """What a worker would write of a run, what was raised in it, and whether its own transaction has finished the job."""

    outcome: Outcome
    error: BaseException | None = None
    finished: bool = False


def run(
    conn: Connection[Any],
    handler: Kind,
    payload: Mapping[str, Any] | None = None,
    *,
    tenant: Tenant = None,
    attempt: int = 1,
    max_attempts: int | None = None,
    queue: str = "default",
    job_id: int | None = None,
) -> InlineRun:
    """Run a handler in the transaction of `conn`, without enqueuing a job, and return how that ended.

    handler: the decorated function, or its kind. It need not be known to the database, which needs no tables of Fencepost's.
    payload: as for `enqueue`: what JSON has, and nothing else.
    attempt, max_attempts, queue: what the job says of itself.
    job_id: two runs with the same id are runs of one job, and have one idempotency key. By default each has an id of its own.

    Raises InvalidJob for what could not be enqueued, UnknownHandler, and JobError if `conn` can't have a transaction open.
    """
    return inside(conn, _prepared(handler, payload, tenant, attempt, max_attempts, queue, job_id))


async def arun(
    conn: AsyncConnection[Any],
    handler: Kind,
    payload: Mapping[str, Any] | None = None,
    *,
    tenant: Tenant = None,
    attempt: int = 1,
    max_attempts: int | None = None,
    queue: str = "default",
    job_id: int | None = None,
) -> InlineRun:
    """Run a handler in the transaction of an AsyncConnection; as `run`. It runs in a thread, with a loop of its own."""
    return await ainside(conn, _prepared(handler, payload, tenant, attempt, max_attempts, queue, job_id))


def judged(caller: Caller, claim: Claim, handler: Handler, settings: Settings, *, in_table: bool) -> Judged:
    """Run what was claimed, by the worker's own code, and return how that ended."""
    error = missing_tenant(claim, handler, settings)
    if error is not None:
        return Judged(refused(error), error)
    if inspect.iscoroutinefunction(handler.function) and _a_loop_runs():
        raise JobError(f"the handler of {claim.kind!r} is a coroutine, and an event loop runs here: use arun() or adrain()")
    held = Held(claim.id, claim.fence, claim.name)
    transactions = _Transactions(caller, settings, held, claim.tenant, 0.0, Savepoints(in_table=in_table))
    one = _Run(
        job_of(claim, settings.schema, transactions, _report),
        handler,
        claim.payload,
        transactions,
        # A board that nobody writes on: no stop is ever asked for.
        Stop(Board()),
        settings,
        lambda: None,
    )
    outcome = one.call(0)
    if one.error is not None and not isinstance(one.error, OF_JOBS):
        raise one.error
    return Judged(outcome, one.error, one.finished)


def told(claim: Claim, judged: Judged, status: str | None = None) -> InlineRun:
    """Return a run as its caller sees it."""
    outcome = judged.outcome
    return InlineRun(
        job_id=claim.id,
        kind=claim.kind,
        tenant=claim.tenant,
        attempt=claim.attempt,
        outcome=outcome.ended,
        result=None if outcome.result is None else json.loads(outcome.result),
        error=judged.error,
        summary=outcome.summary,
        wait=outcome.wait,
        final=outcome.final,
        status=status,
    )


def next_name() -> str:
    """Return the name of a claim that no other has."""
    return claim_name(WORKER, next(_claims))


class _Transactions(RunTransactions):
    """The transactions of a run inside the caller's, which is open before and after each."""

    at_rest = frozenset({TransactionStatus.IDLE, TransactionStatus.INTRANS})
    prepares = False

    def close(self) -> None:
        left_open = self._lent is not None and self._lent.holder is not Holder.nobody
        super().close()
        if left_open:
            # A worker would drop the session.
            self.roll_back(Caller(self._session.job_pgconn()).conn())


class _Run(Run):
    """A run that keeps what was raised in it."""

    error: BaseException | None = None

    def _judge(self, error: BaseException) -> Outcome:
        self.error = error
        return super()._judge(error)


def _prepared(
    handler: Kind,
    payload: Mapping[str, Any] | None,
    tenant: Tenant,
    attempt: int,
    max_attempts: int | None,
    queue: str,
    job_id: int | None,
) -> partial[InlineRun]:
    settings = read()
    known = handler_of(handler if isinstance(handler, str) else kind_of(handler))
    number = next(_claims)
    claim = Claim(
        id=number if job_id is None else job_id,
        fence=1,
        name=claim_name(WORKER, number),
        queue=queue,
        kind=known.kind,
        payload=payload_text(payload),
        tenant=tenant_text(tenant),
        priority=0,
        run_at=_EPOCH,
        attempt=attempt,
        max_attempts=max_attempts or known.max_attempts or settings.max_attempts,
        max_runtime=None,
        created_at=_EPOCH,
    )
    return partial(_run, claim=claim, handler=known, settings=settings)


def _run(caller: Caller, *, claim: Claim, handler: Handler, settings: Settings) -> InlineRun:
    return told(claim, judged(caller, claim, handler, settings, in_table=False))


def _report(done: float, total: float | None) -> None:
    """Refuse what a worker would refuse; nobody looks at it here."""
    float(done), total is None or float(total)


def _a_loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
