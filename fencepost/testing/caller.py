"""The transaction that is open on a caller's connection.

Invariant: it is never committed or rolled back here, and the caller's connection object finds its own as it left it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGconn

from fencepost.job import JobError
from fencepost.jobs.sql import statement
from fencepost.worker.connection import JobConnection, Lent

T = TypeVar("T")

OPENS = statement("moment", "fencepost")
"""Sent by the caller's own object, so that its transaction begins as the caller wants it to. It names no table."""


class Caller:
    """A caller's libpq connection, as a session for the transactions of jobs."""

    def __init__(self, pgconn: PGconn) -> None:
        self._pgconn = pgconn

    def job_pgconn(self) -> PGconn:
        """Return the libpq connection for the job's transactions."""
        return self._pgconn

    def gave_up_job(self, _error: psycopg.Error) -> bool:
        """Keep it: it is the caller's."""
        return False

    def conn(self) -> JobConnection:
        """Return a connection for our own statements, with nothing on it that the caller has put on theirs."""
        return JobConnection.on(self._pgconn, Lent())

    @property
    def is_in_transaction(self) -> bool:
        """Whether the transaction is still open: what a job did may have ended it."""
        return self._pgconn.transaction_status == TransactionStatus.INTRANS


def inside(conn: Connection[Any], act: Callable[[Caller], T]) -> T:
    """Return what `act` returns for the transaction of `conn`, opened if need be. Raises JobError if there can be none."""
    if _must_begin(conn):
        Cursor(conn).execute(OPENS)
    return _kept(conn.pgconn, act)


async def ainside(conn: AsyncConnection[Any], act: Callable[[Caller], T]) -> T:
    """Return what `act` returns, as `inside`. It runs in a thread: a coroutine's job has an event loop of its own."""
    if _must_begin(conn):
        await AsyncCursor(conn).execute(OPENS)
    async with conn.lock:
        running = asyncio.create_task(asyncio.to_thread(_kept, conn.pgconn, act))
        try:
            return await asyncio.shield(running)
        finally:
            # A thread can't be cancelled, and nobody else may have the connection before it has ended.
            await asyncio.wait([running])


def _must_begin(conn: Connection[Any] | AsyncConnection[Any]) -> bool:
    status = conn.pgconn.transaction_status
    if status == TransactionStatus.INERROR:
        raise JobError("the connection's transaction has failed: roll it back first")
    if status == TransactionStatus.IDLE and conn.autocommit:
        raise JobError("the connection is in autocommit: open a transaction first, with conn.transaction()")
    return status == TransactionStatus.IDLE


def _kept(pgconn: PGconn, act: Callable[[Caller], T]) -> T:
    with _handlers_kept(pgconn):
        return act(Caller(pgconn))


@contextmanager
def _handlers_kept(pgconn: PGconn) -> Iterator[None]:
    """Give back to the caller's connection object what another object on the same libpq connection takes from it."""
    notice, notify = pgconn.notice_handler, pgconn.notify_handler
    try:
        yield
    finally:
        pgconn.notice_handler, pgconn.notify_handler = notice, notify
