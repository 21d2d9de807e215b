"""The worker's two connections, and the transactions that a job gets on one of them.

Claims and finishes have a connection that no job ever sees. A job's transactions run on the other, opened when first used,
and it is as new again after each job that used it: `DISCARD ALL`, since neither a rollback nor `RESET ALL` takes back roles,
temporary tables, advisory locks and LISTEN. It uses no prepared statements: psycopg would not notice that they went.

Invariant: what a job is handed is an object of that one transaction. It refuses once the transaction is over, in another
process, and where the job has ended the transaction itself, since psycopg would then open another, without tenant or role.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable
from typing import Any, TypeVar, cast

import psycopg
import tenacity
from psycopg import AsyncConnection, Connection
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGconn
from psycopg_pool import NullConnectionPool

from fencepost.board import boottime
from fencepost.job import JobError, Outcome, Stopped, TransactionEnded
from fencepost.jobs import transaction as statements
from fencepost.jobs.sessions import end_sessions
from fencepost.jobs.transaction import Context, Held
from fencepost.settings import Settings
from fencepost.start import application_name

RV = TypeVar("RV")

LOST = "FP001"
"""The sqlstate of `hold` for a run that no longer holds its job."""

ENDED = "FP002"
"""The sqlstate of `hold` for a job that has ended its transaction itself."""


class Lent:
    """Whether a connection object may still be used, and by which process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.open = False
        self.ended_by_job = False

    def check(self, pgconn: PGconn) -> None:
        """Raise JobError unless the job's transaction is still the one that was begun for it."""
        if os.getpid() != self.pid:
            raise JobError("this connection belongs to another process: a copy of the job can't use it")
        if not self.open:
            raise JobError("the transaction of this connection is over: open another with job.transaction()")
        if pgconn.transaction_status == TransactionStatus.IDLE:
            self.ended_by_job = True
            raise TransactionEnded("the job ended its transaction itself: leave the `with` block to commit it")

    def refuse(self, verb: str) -> TransactionEnded:
        """Return the error for a job that calls `verb` on its connection."""
        self.ended_by_job = True
        return TransactionEnded(f"the transaction ends with its `with` block: a job can't {verb} it")


class JobConnection(Connection[tuple[Any, ...]]):
    """A connection as a job sees it: an object of one transaction, on a libpq connection that outlives it."""

    lent: Lent | None = None

    def __del__(self) -> None:
        """Do nothing: the libpq connection is the session's."""

    def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        """Let through what goes to the server, while the transaction is the job's. All of psycopg passes here."""
        if self.lent is not None:
            self.lent.check(self.pgconn)
        return super().wait(gen, *args, **kwargs)

    def commit(self) -> None:
        """Refuse."""
        raise cast("Lent", self.lent).refuse("commit")

    def rollback(self) -> None:
        """Refuse."""
        raise cast("Lent", self.lent).refuse("roll back")

    def close(self) -> None:
        """Refuse."""
        raise cast("Lent", self.lent).refuse("close")


class AsyncJobConnection(AsyncConnection[tuple[Any, ...]]):
    """A connection as a coroutine sees it; as JobConnection."""

    lent: Lent | None = None

    def __del__(self) -> None:
        """Do nothing: the libpq connection is the session's."""

    async def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        """Let through what goes to the server, while the transaction is the job's."""
        if self.lent is not None:
            self.lent.check(self.pgconn)
        return await cast("Awaitable[RV]", super().wait(gen, *args, **kwargs))

    async def commit(self) -> None:
        """Refuse."""
        raise cast("Lent", self.lent).refuse("commit")

    async def rollback(self) -> None:
        """Refuse."""
        raise cast("Lent", self.lent).refuse("roll back")

    async def close(self) -> None:
        """Refuse."""
        raise cast("Lent", self.lent).refuse("close")


class Session:
    """Both connections of a worker."""

    def __init__(self, settings: Settings, worker: str) -> None:
        self._settings = settings
        self._application = application_name(worker)
        # Both are held for as long as they work. The null pool opens one when it is asked, in the calling thread, and keeps
        # none that were given back.
        self._pool = NullConnectionPool(
            settings.conninfo(self._application, client_connection_check_interval="500"),
            kwargs={"autocommit": True},
            max_size=8,
            num_workers=1,
            open=False,
            timeout=10.0,
        )
        self._claims: Connection[tuple[Any, ...]] | None = None
        self._job: Connection[tuple[Any, ...]] | None = None
        self._sockets: dict[int, tuple[int, int]] = {}
        self._forgotten: list[Connection[tuple[Any, ...]]] = []

    # ---- the worker's own

    def claims(self) -> Connection[tuple[Any, ...]]:
        """Return the connection for claims and finishes, opened if need be. Raises psycopg.OperationalError."""
        if self._claims is None:
            self._claims = self._connect()
        return self._claims

    def drop_claims(self) -> None:
        """Give up the connection for claims: it broke, or its server only reads."""
        self._claims = self._close(self._claims)

    def end_old_sessions(self) -> None:
        """End what this worker still has open on the server besides the claims' connection, and wait until it is gone.

        A statement whose answer was lost may otherwise still be carried out after it was asked about (protocol, rule 8).
        """
        self._job = self._close(self._job)
        conn = self.claims()
        patience = tenacity.Retrying(
            retry=tenacity.retry_if_result(bool), wait=tenacity.wait_fixed(0.05), stop=tenacity.stop_after_delay(10)
        )
        patience(lambda: end_sessions(conn, self._settings.schema, self._application))

    def is_whole(self) -> bool:
        """Whether the sockets of both connections are still what they were when they were opened."""
        return all(
            conn is None or conn.closed or _identity(conn.pgconn.socket) == self._sockets.get(conn.pgconn.socket)
            for conn in (self._claims, self._job)
        )

    def forget(self) -> None:
        """Do without both connections, and never touch them again: closing would write to descriptors not ours."""
        self._forgotten += [conn for conn in (self._claims, self._job) if conn is not None]
        self._claims = self._job = None

    # ---- the job's

    def lend(self, kind: type[RV]) -> RV:
        """Return an object of `kind` (JobConnection or AsyncJobConnection) on the job's libpq connection."""
        if self._job is None or self._job.closed:
            self._job = self._close(self._job)
            self._job = self._connect()
        conn = kind(self._job.pgconn)  # type: ignore[call-arg]
        conn.prepare_threshold = None  # type: ignore[attr-defined]
        # Not through the setter, which for a coroutine's connection is one more await: nothing is open yet.
        conn._autocommit = True  # type: ignore[attr-defined]
        return conn

    def reusable(self) -> bool:
        """Whether nothing of the job is still open, or still being carried out, on its connection."""
        return self._job is None or self._job.pgconn.transaction_status == TransactionStatus.IDLE

    def clean(self) -> None:
        """Make the job's connection as new, or do without it: the next job opens another."""
        if self._job is None:
            return
        try:
            statements.discard(self._job, self._settings.schema)
        except psycopg.Error:
            self._job = self._close(self._job)

    def _connect(self) -> Connection[tuple[Any, ...]]:
        if self._pool.closed:
            self._pool.open()
        conn = self._pool.getconn()
        self._sockets[conn.pgconn.socket] = _identity(conn.pgconn.socket)
        return conn

    def _close(self, conn: Connection[tuple[Any, ...]] | None) -> None:
        if conn is not None:
            conn.close()
            self._pool.putconn(conn)


class Transaction:
    """One fenced, tenant-local transaction of a run: for `with`, and for `async with` in a coroutine."""

    def __init__(self, run: RunTransactions) -> None:
        self._run = run
        self._conn: Any = None

    def __enter__(self) -> JobConnection:
        self._conn = self._run.begin()
        return cast("JobConnection", self._conn)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self._run.commit(self._conn)
        else:
            self._run.roll_back(self._conn)

    async def __aenter__(self) -> AsyncJobConnection:
        self._conn = await self._run.abegin()
        return cast("AsyncJobConnection", self._conn)

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            await self._run.acommit(self._conn)
        else:
            await self._run.aroll_back(self._conn)


class RunTransactions:
    """The transactions of one run, one at a time.

    `lost` is set once the fence has refused one; `violated` once the job has ended one itself, or left one open: such a run
    is no success, whatever its handler returns.
    """

    def __init__(self, session: Session, settings: Settings, held: Held, tenant: str | None, ends_at: float) -> None:
        self._session = session
        self._settings = settings
        self._held = held
        self._tenant = tenant or ""
        self._ends_at = ends_at
        self._lent: Lent | None = None
        self.pid = os.getpid()
        self.lost = False
        self.violated: TransactionEnded | None = None

    def transaction(self) -> Transaction:
        """Return a transaction to be entered."""
        return Transaction(self)

    def begin(self) -> JobConnection:
        """Begin one, with tenant, role, token and time limits set locally."""
        conn = self._take(JobConnection)
        statements.begin(conn, self._settings.schema, self._held, self._context())
        return self._lend(conn)

    def commit(self, conn: JobConnection) -> None:
        """Commit, if the run still holds its job. Raises Stopped (lease) or TransactionEnded where it does not."""
        self._end(conn)
        try:
            statements.commit(conn, self._settings.schema, self._held)
        except psycopg.Error as error:
            self.roll_back(conn)
            self._judge(error)
            raise

    def finish_and_commit(self, conn: JobConnection, outcome: Outcome) -> None:
        """Commit the run's one transaction and its being done together; as `commit`."""
        self._end(conn)
        try:
            statements.finish_and_commit(conn, self._settings.schema, self._held, outcome)
        except psycopg.Error as error:
            self.roll_back(conn)
            self._judge(error)
            raise

    def roll_back(self, conn: JobConnection) -> None:
        """Roll back. What can't be is left to the server, which rolls back what has lost its client."""
        self._let_go(conn)
        if _can_roll_back(conn.pgconn):
            try:
                statements.roll_back(conn, self._settings.schema)
            except psycopg.Error:
                conn.pgconn.finish()
        else:
            conn.pgconn.finish()

    @staticmethod
    def for_coroutine(conn: JobConnection) -> AsyncJobConnection:
        """Return the same transaction as a coroutine can use it."""
        other = AsyncJobConnection(conn.pgconn)
        other.prepare_threshold = None
        other._autocommit = True
        other.lent = conn.lent
        return other

    async def abegin(self) -> AsyncJobConnection:
        """Begin one for a coroutine."""
        conn = self._take(AsyncJobConnection)
        await statements.abegin(conn, self._settings.schema, self._held, self._context())
        return self._lend(conn)

    async def acommit(self, conn: AsyncJobConnection) -> None:
        """Commit one of a coroutine; as `commit`."""
        self._end(conn)
        try:
            await statements.acommit(conn, self._settings.schema, self._held)
        except psycopg.Error as error:
            await self.aroll_back(conn)
            self._judge(error)
            raise

    async def aroll_back(self, conn: AsyncJobConnection) -> None:
        """Roll back one of a coroutine; as `roll_back`."""
        self._let_go(conn)
        if _can_roll_back(conn.pgconn):
            try:
                await statements.aroll_back(conn, self._settings.schema)
            except psycopg.Error:
                conn.pgconn.finish()
        else:
            conn.pgconn.finish()

    def close(self) -> None:
        """End the run's use of its connection: what the job kept of it refuses from now on."""
        if self._lent is not None and self._lent.open:
            self._lent.open = False
            if os.getpid() == self._lent.pid:
                self.violated = self.violated or TransactionEnded("the job left a transaction open: use it with `with`")

    def _take(self, kind: type[RV]) -> RV:
        if self._lent is not None and self._lent.open:
            raise JobError("a transaction of this job is open already: leave its `with` block first")
        self._lent = Lent()
        return self._session.lend(kind)

    def _lend(self, conn: RV) -> RV:
        lent = cast("Lent", self._lent)
        lent.open = True
        conn.lent = lent  # type: ignore[attr-defined]
        return conn

    def _end(self, conn: Any) -> None:
        # Checked by the connection's own rule first: a job that ended the transaction, or a copy of it, ends here.
        lent = cast("Lent", conn.lent)
        try:
            lent.check(conn.pgconn)
        except TransactionEnded as error:
            self._let_go(conn)
            self.violated = error
            raise
        self._let_go(conn)

    def _let_go(self, conn: Any) -> None:
        if conn.lent is not None:
            if conn.lent.ended_by_job and self.violated is None:
                self.violated = TransactionEnded("the job ended its transaction itself: leave the `with` block instead")
            conn.lent.open = False
            if os.getpid() != conn.lent.pid:
                raise JobError("this connection belongs to another process: a copy of the job can't use it")
        conn.lent = None

    def _judge(self, error: psycopg.Error) -> None:
        if error.sqlstate == LOST:
            self.lost = True
            raise Stopped("lease") from error
        if error.sqlstate == ENDED:
            self.violated = TransactionEnded("the job ended its transaction itself: leave the `with` block instead")
            raise self.violated from error

    def _context(self) -> Context:
        return Context(
            tenant_setting=self._settings.tenant_setting,
            tenant=self._tenant,
            role=self._settings.job_role,
            # Behind the supervisor's own stop, grace and kill: this ends what no one here can end any more. No less than a
            # moment, since 0 would mean no limit at all.
            time_left=max(1, int((self._ends_at + self._settings.kill_grace + 1.0 - boottime()) * 1000)),
        )


def _can_roll_back(pgconn: PGconn) -> bool:
    return pgconn.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR, TransactionStatus.IDLE)


def _identity(fd: int) -> tuple[int, int]:
    try:
        status = os.fstat(fd)
    except OSError:
        return (-1, -1)
    return status.st_dev, status.st_ino
