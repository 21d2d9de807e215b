"""Run a handler, and judge how its run ended.

Invariant: whatever a job returns or raises, the run ends as exactly one Outcome, and a success only if the handler returned
something that can be kept, having left its transactions as it should.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import json
import math
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import tenacity
from tenacity.wait import wait_base

from fencepost.handlers import Handler
from fencepost.job import Cancel, Ended, GiveUp, Job, JobError, Outcome, Retry, Snooze, Stopped
from fencepost.jobs.claim import Claim
from fencepost.jobs.payload import NotJson, encode
from fencepost.settings import Settings
from fencepost.worker.errors import SUMMARY, clean, describe, summarize
from fencepost.worker.stop import Stop
from fencepost.worker.transactions import RunTransactions

_RETRYING = tenacity.Retrying()

EXECUTOR = "job-executor"
PATIENCE_WITH_TASKS = 1.0
"""Seconds that tasks which a coroutine has left get to end after they were cancelled."""


class Run:
    """One run of a handler.

    With `transaction=True` the handler's one transaction also finishes the job: `finished` says that it did, `in_doubt` that
    the answer to its COMMIT was lost. `before_finish` is called before that COMMIT is sent.
    """

    def __init__(
        self,
        job: Job,
        handler: Handler,
        payload: str,
        transactions: RunTransactions,
        stop: Stop,
        settings: Settings,
        before_finish: Callable[[], None],
    ) -> None:
        self._job = job
        self._handler = handler
        self._payload = payload
        self._transactions = transactions
        self._stop = stop
        self._settings = settings
        self._before_finish = before_finish
        self.finished = False
        self.in_doubt = False

    def call(self, claim: int) -> Outcome:
        """Call the handler, and return how that ended. A stop of `claim` lands in here and nowhere else."""
        try:
            try:
                self._stop.arm(claim)
                outcome = self._in_one_transaction() if self._handler.transaction else self._done()
            finally:
                self._stop.disarm()
        except BaseException as error:  # noqa: BLE001  # SystemExit and the like are a job's failures, not the worker's
            outcome = self._judge(error)
        finally:
            # A copy of this process that the job forked comes back to here too, and must go no further.
            if os.getpid() != self._transactions.pid:
                os._exit(1)
        self._transactions.close()
        if self._transactions.violated is not None and outcome.ended is Ended.done and not self.finished:
            outcome = self._judge(self._transactions.violated)
        return outcome if outcome.max_rss is not None else replace(outcome, max_rss=peak_memory())

    def _done(self) -> Outcome:
        result = encode(self._value(), "the result")
        return Outcome(Ended.done, result=result, max_rss=peak_memory())

    def _value(self) -> Any:
        payload = json.loads(self._payload)
        if not isinstance(payload, dict):
            raise TypeError(f"the payload must be a JSON object, of keyword arguments, not {type(payload).__name__}")
        # In a context of its own: what a job binds to context variables, its tenant say, must not be there for the next.
        context = contextvars.copy_context()
        value = context.run(self._handler.function, self._job, **payload)
        return value if value is None or not inspect.isawaitable(value) else self._awaited(value, context)

    def _in_one_transaction(self) -> Outcome:
        conn = self._transactions.begin()
        in_handler = self._transactions.for_coroutine(conn) if self._is_coroutine() else conn
        self._job._conn = in_handler  # noqa: SLF001  # the job's own, and nobody's else to set
        try:
            # What can't be kept as a result is refused before anything is committed.
            outcome = self._done()
        except BaseException:
            self._transactions.roll_back(conn)
            raise
        # From here on the code is ours: a stop in the middle of a COMMIT would leave nobody knowing how it ended.
        self._stop.disarm()
        self._before_finish()
        try:
            self._transactions.finish_and_commit(conn, outcome)
        except psycopg.OperationalError:
            self.in_doubt = True
            raise
        self.finished = True
        return outcome

    def _awaited(self, awaitable: Any, context: contextvars.Context) -> Any:
        loop = asyncio.new_event_loop()
        executor = ThreadPoolExecutor(thread_name_prefix=EXECUTOR)
        loop.set_default_executor(executor)
        try:
            task = loop.create_task(_main(awaitable), context=context)
            self._stop.arm_task(task)
            try:
                return loop.run_until_complete(task)
            finally:
                # As asyncio.run would, but never waiting without end: a thread of the loop's executor that goes on is a
                # leftover like any other.
                left = asyncio.all_tasks(loop)
                for other in left:
                    other.cancel()
                if left:
                    loop.run_until_complete(asyncio.wait(left, timeout=PATIENCE_WITH_TASKS))
                loop.run_until_complete(loop.shutdown_asyncgens())
                executor.shutdown(wait=False, cancel_futures=True)
                _wait_for_idle_threads()
        finally:
            loop.close()

    def _is_coroutine(self) -> bool:
        return inspect.iscoroutinefunction(self._handler.function)

    def _judge(self, error: BaseException) -> Outcome:
        stopped = self._stop.raised
        if self._transactions.lost:
            return Outcome(Ended.lost)
        if stopped is not None and (_is_from(error, stopped) or isinstance(error, asyncio.CancelledError)):
            return _stopped(stopped, error)
        match error:
            case Snooze():
                return Outcome(Ended.snoozed, wait=error.after)
            case Cancel():
                description = {"class": "Cancel", "message": clean(str(error), SUMMARY)}
                return Outcome(Ended.cancelled, error=description, summary=summarize(description))
            case NotJson():
                error = JobError(f"{self._job.kind} returned what can't be kept: {error}")
        description = describe(error)
        failed = Outcome(Ended.failed, error=description, summary=summarize(description))
        if isinstance(error, GiveUp):
            return replace(failed, final=True)
        if isinstance(error, Retry) and error.after is not None:
            return replace(failed, wait=error.after)
        return replace(failed, wait=wait_before_next(self._handler, self._settings, self._job.attempt))


def job_of(claim: Claim, schema: str, transactions: RunTransactions, report: Callable[[float, float | None], None]) -> Job:
    """Return what was claimed as its handler sees it."""
    return Job(
        id=claim.id,
        kind=claim.kind,
        queue=claim.queue,
        attempt=claim.attempt,
        max_attempts=claim.max_attempts,
        tenant=claim.tenant,
        _name=f"{schema}/{claim.id}/{claim.created_at.timestamp()}",
        _transactions=transactions,
        _report=report,
    )


def missing_tenant(claim: Claim, handler: Handler, settings: Settings) -> JobError | None:
    """Return why the job must not run as nobody, if it has no tenant and needs one."""
    if claim.tenant is not None or handler.tenantless or not settings.tenant_setting:
        return None
    return JobError(f"a job of kind {claim.kind!r} needs a tenant, and this one has none")


def refused(error: JobError) -> Outcome:
    """Return how a run ends that was never begun, and never can be."""
    description = describe(error)
    return Outcome(Ended.failed, final=True, error=description, summary=summarize(description))


def _wait_for_idle_threads() -> None:
    """Let the executor's threads end that have nothing to do any more: such are no leftovers."""
    until = time.monotonic() + PATIENCE_WITH_TASKS
    while any(thread.name.startswith(EXECUTOR) for thread in threading.enumerate()) and time.monotonic() < until:
        time.sleep(0.001)


async def _main(awaitable: Any) -> Any:
    return await awaitable


def wait_before_next(handler: Handler | None, settings: Settings, attempt: int) -> timedelta:
    """Return how long to wait after `attempt` has failed: as the handler's wait object says, or the settings.

    The default doubles from BACKOFF to BACKOFF_MAX, and adds up to BACKOFF at random, so that what failed together does not
    come back together. A wait object that raises, or answers nonsense, does not cost the job its retry: the default applies.
    """
    state = tenacity.RetryCallState(_RETRYING, None, (), {})
    state.attempt_number = attempt
    if handler is not None and handler.wait is not None:
        try:
            seconds = float(handler.wait(state))
            if not math.isnan(seconds):
                return timedelta(seconds=max(0.0, seconds))
        except BaseException:  # noqa: BLE001, S110  # the user's code
            pass
    return timedelta(seconds=_default_wait(settings.backoff, settings.backoff_max)(state))


@functools.cache
def _default_wait(backoff: float, backoff_max: float) -> wait_base:
    return tenacity.wait_exponential(multiplier=backoff, max=backoff_max) + tenacity.wait_random(0, backoff)


def peak_memory() -> int:
    """Return the peak of this process' memory, in bytes. Asked as for a thread, which counts nothing else of the others'."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_maxrss * 1024


def _stopped(stopped: Stopped, error: BaseException) -> Outcome:
    description = describe(error)
    match stopped.reason:
        case "max_runtime":
            return Outcome(
                Ended.overran, error=description, summary="stopped at its max runtime", stack=description["traceback"]
            )
        case "drain":
            return Outcome(Ended.interrupted, error=description, summary="stopped by a drain")
        case "cancel":
            return Outcome(Ended.cancelled, error=description, summary="cancelled while it ran")
        case "lease":
            return Outcome(Ended.lost)


def _is_from(error: BaseException, stopped: Stopped) -> bool:
    return any(link is stopped for link in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Return `error`, what it came from, and what that came from."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        waiting += [link.__cause__, link.__context__]
        if isinstance(link, BaseExceptionGroup):
            waiting += link.exceptions
