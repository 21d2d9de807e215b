"""The supervisor's way to the database: its own connections, asyncio, without threads, and never without a time limit.

Invariant: no duty waits for the database longer than the limit that it gave. A statement that is late is abandoned together
with its connection; the next try opens another, or waits for one that is still being opened. Nobody else waits for an abandoned
one to end.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import psycopg
import structlog
import tenacity
from psycopg import AsyncConnection

from fencepost.board import boottime
from fencepost.jobs.pooler import aconnect, cure_of
from fencepost.settings import Settings

log = structlog.get_logger()

Answer = TypeVar("Answer")
Conn = AsyncConnection[tuple[Any, ...]]

BETWEEN_CONNECTS = tenacity.wait_random(0.5, 2.0)
USELESS = ("25006", "57P01", "57P02", "57P03", "25P03", "25P04")
"""sqlstates after which the session is of no more use: its server only reads, is going down, or has ended it."""

ONLY_READS = "the server only reads by now"

CANCEL_MAY_TAKE = 6.0
"""Seconds that the driver gets to have an abandoned statement cancelled: it asks the server, for five."""


class Away(Exception):
    """The database did not answer: unreachable, late, or reachable only for reading."""


class BehindPooler(Away):
    """What answers is a pooler that keeps no sessions, and the settings say nothing of one."""


class Link:
    """One connection, opened when first used and again after it broke."""

    def __init__(self, settings: Settings, duty: str, supervisor: str, limit: float) -> None:
        # The server ends what we have given up, and a lock that we wait for is not waited for any longer either.
        milliseconds = str(int(limit * 1000))
        self._connect_once = partial(
            aconnect,
            settings,
            f"fencepost {supervisor} {duty}",
            statement_timeout=milliseconds,
            # Less: a lock that is not given is an answer, and not a database that is away.
            lock_timeout=str(int(limit * 500)),
            client_connection_check_interval="500",
            # It keeps its plans, too: one of when the table was small must not walk all of a large one, nor be compiled.
            enable_seqscan="off",
            jit="off",
        )
        self._duty = duty
        self._limit = limit
        self._conn: Conn | None = None
        self._connecting: asyncio.Task[Conn] | None = None
        self._turn = asyncio.Lock()
        self._connect_at = 0.0
        self._trouble = ""

    async def run(self, act: Callable[[Conn], Awaitable[Answer]], limit: float | None = None) -> Answer:
        """Await `act` on the connection, for `limit` seconds in all. Raises Away, or what the server says of the statement."""
        deadline = boottime() + (limit or self._limit)
        try:
            async with asyncio.timeout(limit or self._limit):
                await self._turn.acquire()
        except TimeoutError:
            raise Away("the statement before it has not been answered") from None
        try:
            answer = await self._within(deadline, act)
        except Away as error:
            self._note(str(error))
            raise
        else:
            self._note("")
            return answer
        finally:
            self._turn.release()

    async def _within(self, deadline: float, act: Callable[[Conn], Awaitable[Answer]]) -> Answer:
        if self._conn is None or self._conn.closed:
            if boottime() < self._connect_at:
                raise Away(self._trouble or "not connected")
            self._conn = await self._connect(deadline)
        conn = self._conn
        try:
            answer = await limited(act(conn), deadline, conn)
        except psycopg.Error as error:
            # A server that answers with a no has answered: the duty has to deal with that.
            if conn.closed or conn.broken or error.sqlstate in USELESS:
                self._conn = None
                await _close(conn)
                raise Away(_line(error)) from None
            raise
        except Away:
            self._conn = None
            raise
        if only_reads(conn):
            self._conn = None
            await _close(conn)
            raise Away(ONLY_READS)
        return answer

    async def _connect(self, deadline: float) -> Conn:
        # A connect that takes longer than this duty may is gone on with by its next try. Begun anew it would begin with the
        # same host: of two, the second would never be asked while the first is silent. Each has connect_timeout as its limit.
        if self._connecting is None:
            self._connecting = asyncio.ensure_future(self._connect_once())
        done, _ = await asyncio.wait({self._connecting}, timeout=max(0.0, deadline - boottime()))
        if not done:
            raise Away("no answer in time")
        connecting, self._connecting = self._connecting, None
        try:
            return connecting.result()
        except psycopg.Error as error:
            self._connect_at = boottime() + self._between_connects()
            if (cure := cure_of(error)) is not None:
                raise BehindPooler(f"{_line(error)}: {cure}") from None
            raise Away(_line(error)) from None

    def _between_connects(self) -> float:
        # At most half of what a statement may take: a heartbeat that has less than four seconds is that of a short lease, which
        # would be over before the second connect. Still at random, so that not all come back in one instant.
        state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
        return BETWEEN_CONNECTS(state) * min(1.0, self._limit / 4)

    def _note(self, trouble: str) -> None:
        # Said once, when it changes: an outage must not fill the disk with logs.
        if bool(trouble) != bool(self._trouble):
            if trouble:
                log.warning("the database is away", duty=self._duty, error=trouble)
            else:
                log.info("the database is back", duty=self._duty)
        self._trouble = trouble

    async def close(self) -> None:
        """Close the connection, and don't wait for one that is being opened."""
        if self._connecting is not None:
            _abandon(self._connecting, None)
            self._connecting = None
        if self._conn is not None:
            await _close(self._conn)
            self._conn = None


class Resolver(ThreadPoolExecutor):
    """Where asyncio looks names up: a thread for each lookup, that ends with it.

    The pool that asyncio would use keeps its threads, and a fork must find none.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run `fn` in a thread of its own."""
        future: Future[Any] = Future()

        def look_up() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001  # handed on to whoever waits for it
                future.set_exception(error)

        threading.Thread(target=look_up, name="fencepost-resolve", daemon=True).start()
        return future


async def connect(conninfo: str) -> Conn:
    """Connect, in autocommit: nothing of ours stays open between statements."""
    return await AsyncConnection.connect(conninfo, autocommit=True)


def only_reads(conn: Conn) -> bool:
    """Whether the server of `conn` only reads by now: it tells that with an answer, whatever it was asked.

    What only looks would be answered there for ever, with what was true before another server took over.
    """
    return b"on" in (conn.pgconn.parameter_status(name) for name in (b"default_transaction_read_only", b"in_hot_standby"))


async def limited(work: Awaitable[Answer], deadline: float, conn: Conn | None) -> Answer:
    """Await `work` until `deadline`; then abandon it. psycopg's own cancelling may take ten seconds more: not ours."""
    task: asyncio.Task[Answer] = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=max(0.0, deadline - boottime()))
    except asyncio.CancelledError:
        _abandon(task, conn)
        raise
    if done:
        return task.result()
    _abandon(task, conn)
    raise Away("no answer in time")


_abandoned: set[asyncio.Task[None]] = set()


def _abandon(task: asyncio.Task[Any], conn: Conn | None) -> None:
    task.cancel()
    cleanup = asyncio.get_running_loop().create_task(_bury(task, conn))
    _abandoned.add(cleanup)
    cleanup.add_done_callback(_abandoned.discard)


async def _bury(task: asyncio.Task[Any], conn: Conn | None) -> None:
    with contextlib.suppress(BaseException):
        # Asked once, the driver waits until the server has told of the cancelling, old versions without end, and the
        # connection would stay open for as long. Asked again, it lets go.
        await asyncio.wait({task}, timeout=CANCEL_MAY_TAKE)
        task.cancel()
        answer = await task
        if conn is None and isinstance(answer, AsyncConnection):
            conn = answer
    if conn is not None:
        await _close(conn)


async def _close(conn: Conn) -> None:
    with contextlib.suppress(Exception):
        await conn.close()


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
