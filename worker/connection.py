"""A connection as a job sees it.

Invariant: what a job is handed is an object of that one transaction. It refuses once the transaction is over, in another
process, and where the job has ended the transaction itself, since psycopg would then open another, without tenant or role.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable
from enum import Enum, auto
from typing import Any, Self, TypeVar, cast

from psycopg import AsyncConnection, Connection
from psycopg._preparing import PrepareManager
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGconn

from fencepost.job import JobError, TransactionEnded

RV = TypeVar("RV")


class Holder(Enum):
    """Whose turn it is on a connection object."""

    worker = auto()
    job = auto()
    nobody = auto()


class Lent:
    """Who may use a connection object, for which tenant, and whether the job has ended the transaction it was lent for.

    `prepared` is what psycopg knows of the session's prepared statements: one object for all connection objects on it, or the
    second would give the names of the first again. None: there are to be none.
    """

    def __init__(self, tenant: str | None = None, prepared: PrepareManager | None = None) -> None:
        self.tenant = tenant
        self.prepared = prepared
        self.pid = os.getpid()
        self.holder = Holder.worker
        self._thread = threading.get_ident()
        self.violated: TransactionEnded | None = None

    def check(self, pgconn: PGconn) -> None:
        """Raise JobError unless whoever uses the connection now may."""
        if os.getpid() != self.pid:
            raise JobError("this connection belongs to another process: a copy of the job can't use it")
        if self.holder is Holder.nobody or (self.holder is Holder.worker and threading.get_ident() != self._thread):
            raise JobError("the transaction of this connection is over: open another with job.transaction()")
        if self.holder is Holder.job and pgconn.transaction_status == TransactionStatus.IDLE:
            raise self.violation("the job ended its transaction itself: leave the `with` block to commit it")

    def take_back(self) -> None:
        """Have the connection for the worker's own statements.

        A thread of the job's that waits for its turn is refused from here on: behind the COMMIT its statement would be a
        transaction of its own, without tenant, role and fence.
        """
        # In this order: whoever is neither must not be let through in between.
        self._thread = threading.get_ident()
        self.holder = Holder.worker

    def violation(self, text: str) -> TransactionEnded:
        """Note that the job has done what only the end of its `with` block may do; return the error for it."""
        self.violated = TransactionEnded(text)
        return self.violated

    @staticmethod
    def refuse(verb: str) -> TransactionEnded:
        """Return the error for a job that calls `verb` on its connection. Nothing has happened: it may still go on."""
        return TransactionEnded(f"the transaction ends with its `with` block: a job can't {verb} it")


class JobConnection(Connection[tuple[Any, ...]]):
    """A connection as a function sees it, on a libpq connection that outlives it."""

    lent: Lent

    @classmethod
    def on(cls, pgconn: PGconn, lent: Lent) -> Self:
        """Return an object of one transaction on `pgconn`."""
        conn = cls(pgconn)
        conn.lent = lent
        if lent.prepared is None:
            conn.prepare_threshold = None
        else:
            conn._prepared = lent.prepared
        # Not through the setter, which for a coroutine's connection wants to be awaited. Nothing is open yet.
        conn._autocommit = True
        return conn

    @property
    def job_tenant(self) -> str | None:
        """Whose job it is: what is enqueued here is that tenant's too."""
        return self.lent.tenant

    def __del__(self, _warn: Any = None) -> None:
        """Do nothing: the libpq connection is the session's."""

    def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        """Let through what goes to the server, from whoever may. All of psycopg passes here."""
        self.lent.check(self.pgconn)
        return super().wait(gen, *args, **kwargs)

    def commit(self) -> None:
        """Refuse."""
        raise self.lent.refuse("commit")

    def rollback(self) -> None:
        """Refuse."""
        raise self.lent.refuse("roll back")

    def close(self) -> None:
        """Refuse."""
        raise self.lent.refuse("close")


class AsyncJobConnection(AsyncConnection[tuple[Any, ...]]):
    """A connection as a coroutine sees it; as JobConnection."""

    lent: Lent

    @classmethod
    def on(cls, pgconn: PGconn, lent: Lent) -> Self:
        """Return an object of one transaction on `pgconn`."""
        conn = cls(pgconn)
        conn.lent = lent
        if lent.prepared is None:
            conn.prepare_threshold = None
        else:
            conn._prepared = lent.prepared
        conn._autocommit = True
        return conn

    @property
    def job_tenant(self) -> str | None:
        """Whose job it is: what is enqueued here is that tenant's too."""
        return self.lent.tenant

    def __del__(self, _warn: Any = None) -> None:
        """Do nothing: the libpq connection is the session's."""

    async def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        """Let through what goes to the server, from whoever may."""
        self.lent.check(self.pgconn)
        return await cast("Awaitable[RV]", super().wait(gen, *args, **kwargs))

    async def commit(self) -> None:
        """Refuse."""
        raise self.lent.refuse("commit")

    async def rollback(self) -> None:
        """Refuse."""
        raise self.lent.refuse("roll back")

    async def close(self) -> None:
        """Refuse."""
        raise self.lent.refuse("close")
