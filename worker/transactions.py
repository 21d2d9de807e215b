"""The transactions of a run: fenced, with the tenant set locally, one at a time.

Invariant: one commits only if its run still holds the job, and only what was begun for it. A run that has ended a transaction
itself, or left one open, is no success, whatever its handler returns.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, Protocol, cast

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg._preparing import PrepareManager
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGconn

from fencepost.board import boottime
from fencepost.job import JobError, Outcome, Stopped, TransactionEnded
from fencepost.jobs.transaction import Context, Held
from fencepost.settings import Settings
from fencepost.worker.bind import abind, bind
from fencepost.worker.connection import AsyncJobConnection, Holder, JobConnection, Lent

LOST = "FP001"
"""The sqlstate of `hold` for a run that no longer holds its job."""

ENDED = ("FP002", "3B001")
"""The sqlstates for a job that has ended its transaction itself: of `hold`, and of a savepoint that went with it."""

FOR_A_TURN = 1.0
"""Seconds that a commit waits for a statement which another thread or task of the job is at."""

AFTER_THE_END = 1.0
"""Seconds behind max runtime and grace, after which the server ends what no one here could."""


class Session(Protocol):
    """Whose connection the job's transactions run on."""

    def job_pgconn(self) -> PGconn:
        """Return the libpq connection for the job's transactions."""

    def gave_up_job(self, error: psycopg.Error) -> bool:
        """Give up that connection if `error` says that another may do better; return whether to try again."""


class Statements(Protocol):
    """How a transaction begins and ends: `Transactions`, or savepoints in somebody else's transaction."""

    def begin(self, conn: Connection[Any], schema: str, held: Held, context: Context) -> None:
        """Begin."""

    def commit(self, conn: Connection[Any], schema: str, held: Held) -> None:
        """Commit, if the run still holds its job."""

    def finish_and_commit(self, conn: Connection[Any], schema: str, held: Held, outcome: Outcome) -> None:
        """Finish the job as done, and commit both."""

    def roll_back(self, conn: Connection[Any], schema: str) -> None:
        """Roll back."""

    async def abegin(self, conn: AsyncConnection[Any], schema: str, held: Held, context: Context) -> None:
        """Begin."""

    async def acommit(self, conn: AsyncConnection[Any], schema: str, held: Held) -> None:
        """Commit, if the run still holds its job."""

    async def aroll_back(self, conn: AsyncConnection[Any], schema: str) -> None:
        """Roll back."""


class RunTransaction:
    """One transaction: for `with`, and for `async with` in a coroutine."""

    def __init__(self, run: RunTransactions) -> None:
        self._run = run
        self._conn: Any = None

    def __enter__(self) -> JobConnection:
        """Begin."""
        self._conn = self._run.begin()
        return cast("JobConnection", self._conn)

    def __exit__(self, kind: object, error: object, trace: object, /) -> None:
        """Commit, or roll back what ended by an error."""
        if kind is None:
            self._run.commit(self._conn)
        else:
            self._run.roll_back(self._conn)

    async def __aenter__(self) -> AsyncJobConnection:
        """Begin."""
        self._conn = await self._run.abegin()
        return cast("AsyncJobConnection", self._conn)

    async def __aexit__(self, kind: object, error: object, trace: object, /) -> None:
        """Commit, or roll back what ended by an error."""
        if kind is None:
            await self._run.acommit(self._conn)
        else:
            await self._run.aroll_back(self._conn)


class RunTransactions:
    """All transactions of one run.

    `lost` is set once the fence has refused one, `violated` once the job has ended one itself or left one open.
    """

    at_rest: ClassVar = frozenset({TransactionStatus.IDLE})
    """What the connection may be between two transactions."""

    prepares: ClassVar = True
    """Whether a job may prepare statements on the session: where that is the run's own, and is discarded at its end."""

    def __init__(
        self,
        session: Session,
        settings: Settings,
        held: Held,
        tenant: str | None,
        ends_at: float,
        statements: Statements,
    ) -> None:
        self.pid = os.getpid()
        self.lost = False
        self.violated: TransactionEnded | None = None
        self._session = session
        self._statements = statements
        self._settings = settings
        self._held = held
        self._tenant = tenant or ""
        self._ends_at = ends_at
        self._lent: Lent | None = None
        self._on: PGconn | None = None
        self._prepared: PrepareManager | None = None

    def transaction(self) -> RunTransaction:
        """Return a transaction to be entered."""
        return RunTransaction(self)

    # ---- for a function

    def begin(self) -> JobConnection:
        """Begin one, with tenant, role, token and time limits set locally."""
        try:
            return self._begin()
        except psycopg.Error as error:
            # Since it was used last the session may have ended, or its server only reads: nothing is begun, so another will do.
            if not self._session.gave_up_job(error):
                raise
        return self._begin()

    def _begin(self) -> JobConnection:
        with self._lending() as (pgconn, lent):
            conn = JobConnection.on(pgconn, lent)
            self._statements.begin(conn, self._settings.schema, self._held, self._context())
        return conn

    def commit(self, conn: JobConnection) -> None:
        """Commit, if the run still holds its job. Raises Stopped (lease) or TransactionEnded where it does not."""
        _wait_for_a_turn(conn)
        self._take_back(conn)
        try:
            self._statements.commit(conn, self._settings.schema, self._held)
        except BaseException as error:
            self.roll_back(conn)
            self._judge(error)
            raise
        conn.lent.holder = Holder.nobody

    def finish_and_commit(self, conn: JobConnection, outcome: Outcome) -> None:
        """Commit the run's one transaction and its being done together; as `commit`."""
        _wait_for_a_turn(conn)
        self._take_back(conn)
        try:
            self._statements.finish_and_commit(conn, self._settings.schema, self._held, outcome)
        except BaseException as error:
            self.roll_back(conn)
            self._judge(error)
            raise
        conn.lent.holder = Holder.nobody

    def roll_back(self, conn: JobConnection) -> None:
        """Roll back. What can't be is left to the server, which rolls back what has lost its client."""
        self._note_violation(conn.lent)
        conn.lent.take_back()
        try:
            if _can_roll_back(conn.pgconn):
                self._statements.roll_back(conn, self._settings.schema)
        except psycopg.Error:
            pass
        self._give_up_what_is_open(conn.pgconn)
        conn.lent.holder = Holder.nobody

    @staticmethod
    def for_coroutine(conn: JobConnection) -> AsyncJobConnection:
        """Return the same transaction as a coroutine can use it."""
        return AsyncJobConnection.on(conn.pgconn, conn.lent)

    # ---- for a coroutine

    async def abegin(self) -> AsyncJobConnection:
        """Begin one; as `begin`."""
        try:
            return await self._abegin()
        except psycopg.Error as error:
            if not self._session.gave_up_job(error):
                raise
        return await self._abegin()

    async def _abegin(self) -> AsyncJobConnection:
        with self._lending() as (pgconn, lent):
            conn = AsyncJobConnection.on(pgconn, lent)
            await self._statements.abegin(conn, self._settings.schema, self._held, self._context())
        return conn

    async def acommit(self, conn: AsyncJobConnection) -> None:
        """Commit; as `commit`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FOR_A_TURN), conn.lock:
                pass
        self._take_back(conn)
        try:
            await self._statements.acommit(conn, self._settings.schema, self._held)
        except BaseException as error:
            await self.aroll_back(conn)
            self._judge(error)
            raise
        conn.lent.holder = Holder.nobody

    async def aroll_back(self, conn: AsyncJobConnection) -> None:
        """Roll back; as `roll_back`."""
        self._note_violation(conn.lent)
        conn.lent.take_back()
        try:
            if _can_roll_back(conn.pgconn):
                await self._statements.aroll_back(conn, self._settings.schema)
        except psycopg.Error:
            pass
        self._give_up_what_is_open(conn.pgconn)
        conn.lent.holder = Holder.nobody

    # ---- on other connections of the job's

    def bind(self, conn: Any) -> None:
        """Set tenant and role in the open transaction of `conn`. Raises JobError if there is none."""
        self._need_own_process()
        bind(conn, self._settings.schema, self._held.name, self._context())

    async def abind(self, conn: Any) -> None:
        """Set tenant and role in the open transaction of `conn`; as `bind`."""
        self._need_own_process()
        await abind(conn, self._settings.schema, self._held.name, self._context())

    # ---- at the end of the run

    def close(self) -> None:
        """End the run's use of its connection: what the job kept of it refuses from now on."""
        if self._lent is not None:
            self._note_violation(self._lent)
            if self._lent.holder is Holder.job and self.violated is None:
                self.violated = TransactionEnded("the job left a transaction open: use it with `with`")
            self._lent.holder = Holder.nobody

    @contextmanager
    def _lending(self) -> Iterator[tuple[PGconn, Lent]]:
        """Lend the connection for a transaction that begins inside the block, or not at all: then another may be tried."""
        self._need_own_process()
        if self._lent is not None and self._lent.holder is not Holder.nobody:
            raise JobError("a transaction of this job is open already: leave its `with` block first")
        self._lent = lent = Lent(self._tenant or None)
        pgconn: PGconn | None = None
        try:
            pgconn = self._session.job_pgconn()
            lent.prepared = self._prepared_on(pgconn)
            yield pgconn, lent
        except BaseException:
            lent.holder = Holder.nobody
            if pgconn is not None:
                self.roll_back(JobConnection.on(pgconn, lent))
            raise
        lent.holder = Holder.job

    def _need_own_process(self) -> None:
        if os.getpid() != self.pid:
            raise JobError("this job belongs to another process: a copy of it can't use the database")

    def _prepared_on(self, pgconn: PGconn) -> PrepareManager | None:
        """Return what is prepared on a session: nothing yet, if it is another than that of the transaction before."""
        if self.prepares and not self._settings.pooled and pgconn is not self._on:
            self._on, self._prepared = pgconn, PrepareManager()
        return self._prepared

    def _take_back(self, conn: JobConnection | AsyncJobConnection) -> None:
        """Have the connection for the commit. Not from a copy of the job, nor if the transaction is another by now."""
        try:
            conn.lent.check(conn.pgconn)
        except TransactionEnded:
            self._note_violation(conn.lent)
            conn.lent.holder = Holder.nobody
            raise
        if (left := _left_open(conn.pgconn)) is not None:
            conn.lent.violation(f"the job left {left} open in its transaction: use it with `with`, and inside of the block")
            self._note_violation(conn.lent)
            conn.lent.holder = Holder.nobody
            raise cast("TransactionEnded", self.violated)
        self._note_violation(conn.lent)
        conn.lent.take_back()

    def _note_violation(self, lent: Lent) -> None:
        self.violated = self.violated or lent.violated

    def _judge(self, error: BaseException) -> None:
        if not isinstance(error, psycopg.Error):
            return
        if error.sqlstate == LOST:
            self.lost = True
            raise Stopped("lease") from error
        if error.sqlstate in ENDED:
            self.violated = TransactionEnded("the job ended its transaction itself: leave the `with` block instead")
            raise self.violated from error

    def _context(self) -> Context:
        left = self._ends_at + self._settings.kill_grace + AFTER_THE_END - boottime()
        return Context(
            tenant_setting=self._settings.tenant_setting,
            tenant=self._tenant,
            role=self._settings.job_role,
            # No less than a moment, since 0 would mean no limit at all; no more than the server's setting holds.
            time_left=min(max(1, int(left * 1000)), 2**31 - 1),
        )

    def _give_up_what_is_open(self, pgconn: PGconn) -> None:
        if pgconn.transaction_status not in self.at_rest:
            pgconn.finish()


def _wait_for_a_turn(conn: JobConnection) -> None:
    """Let a thread of the job's end the statement that it is at."""
    if conn.lock.acquire(timeout=FOR_A_TURN):
        conn.lock.release()


def _left_open(pgconn: PGconn) -> str | None:
    """Return what would keep a COMMIT from being sent, or from being answered: it would wait behind it without end."""
    if pgconn.pipeline_status != PipelineStatus.OFF:
        return "a pipeline"
    return "a COPY, a stream or another statement" if pgconn.transaction_status == TransactionStatus.ACTIVE else None


def _can_roll_back(pgconn: PGconn) -> bool:
    return pgconn.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)
