"""The worker's two connections.

Claims and finishes have a connection that no job ever sees. A job's transactions run on the other, opened when first used,
and it is made as new between two that use it: by all that DISCARD ALL does, since neither a rollback nor `RESET ALL` takes back
roles, temporary tables, advisory locks and LISTEN. What a job has prepared goes with it, and so psycopg begins anew with each.
"""

from __future__ import annotations

import contextvars
import logging
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
import structlog
import tenacity
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGconn
from psycopg_pool import NullConnectionPool

from fencepost.jobs.cleaning import Cleaning
from fencepost.jobs.pooler import LOCAL, PooledConnection, PooledTransactions
from fencepost.jobs.quick import QuickConnection
from fencepost.jobs.sessions import end_sessions
from fencepost.jobs.transaction import Transactions
from fencepost.settings import Settings
from fencepost.start import application_name
from fencepost.worker.errors import SUMMARY, clean
from fencepost.worker.transactions import Statements

log = structlog.get_logger()

FIRST_RUNS = 3
ONE_OF = 100
"""After which runs of a kind their session is looked at for all that there may be: it takes half a millisecond, and a kind
mostly does as it did before."""

SOON = 0.1
"""Seconds in which a job that is to find its session cleaned only as it begins has to come to that."""

BETWEEN_LOOKS = 0.05

USELESS = ("25006", "57P01", "57P02", "57P03")
"""Read-only server, or one that is shutting down: sqlstates after which another connection may do better."""

CONNECT_MAY_TAKE = 10.0
"""Seconds for a connect to one host where the user has said that there is no limit."""


class Session:
    """Both connections of a worker."""

    def __init__(self, settings: Settings, worker: str) -> None:
        self._settings = settings
        self._application = application_name(worker)
        # Both are held for as long as they work. The null pool opens one when it is asked, in the calling thread, and keeps
        # none that were given back.
        conninfo = settings.conninfo(self._application, client_connection_check_interval="500")
        self._pool: NullConnectionPool[Connection[tuple[Any, ...]]] = NullConnectionPool(
            conninfo,
            connection_class=PooledConnection if settings.pooled else QuickConnection,
            kwargs={"autocommit": True},
            max_size=8,
            num_workers=1,
            open=False,
            # The pool gives each host as much, whatever the connection string says.
            timeout=_time_for_a_host(conninfo),
        )
        self._claims: Connection[tuple[Any, ...]] | None = None
        self._job: Connection[tuple[Any, ...]] | None = None
        self._used = False
        self._cleaning: Cleaning | None = None
        self._clean_runs: Counter[str] = Counter()
        self._soon_in_use: dict[str, bool] = {}
        self._in_use_at = self._idle_at = 0.0
        self._sockets: dict[int, tuple[int, int]] = {}
        self._forgotten: list[Connection[tuple[Any, ...]]] = []
        self.transactions: Statements = PooledTransactions() if settings.pooled else Transactions()

    # ---- the worker's own

    def claims(self) -> Connection[tuple[Any, ...]]:
        """Return the connection for claims and finishes, opened if need be. Raises psycopg.OperationalError."""
        if self._claims is None:
            conn = self._connect()
            try:
                if isinstance(conn, QuickConnection):
                    conn.plan_once(self._settings.schema)
            except BaseException:
                self._close(conn)
                raise
            self._claims = conn
        return self._claims

    def drop_claims(self) -> None:
        """Give up the connection for claims: it broke, or its server only reads."""
        self._close(self._claims)
        self._claims = None

    def end_old_sessions(self) -> None:
        """End what this worker still has open on the server besides the claims' connection, and wait until it is gone.

        A statement whose answer was lost may otherwise still be carried out after it was asked about (protocol, rule 8).
        """
        self._drop_job()
        conn = self.claims()
        patience = tenacity.Retrying(
            retry=tenacity.retry_if_result(bool), wait=tenacity.wait_fixed(BETWEEN_LOOKS), stop=tenacity.stop_after_delay(10)
        )
        try:
            patience(lambda: end_sessions(conn, self._settings.schema, self._application))
            if self._settings.pooled:
                # What was sent last may not have begun yet as we looked.
                time.sleep(BETWEEN_LOOKS)
                patience(lambda: end_sessions(conn, self._settings.schema, self._application))
        except tenacity.RetryError:
            raise psycopg.OperationalError("an old session of this worker does not end") from None

    def is_whole(self) -> bool:
        """Whether the sockets of both connections are still what they were when they were opened."""
        return self._is_ours(self._claims) and self._is_ours(self._job)

    def _is_ours(self, conn: Connection[tuple[Any, ...]] | None) -> bool:
        if conn is None or conn.closed:
            return True
        fd = conn.pgconn.socket
        return _identity(fd) == self._sockets.get(fd)

    def forget(self) -> None:
        """Do without both connections, and never touch them again: closing would write to descriptors not ours."""
        self._forgotten += [conn for conn in (self._claims, self._job) if conn is not None]
        self._claims = self._job = self._cleaning = None

    # ---- the job's

    def job_pgconn(self) -> PGconn:
        """Return the libpq connection for the job's transactions, opened if need be. Raises psycopg.OperationalError."""
        if self._job is not None and self._job.closed:
            log.log(logging.WARNING if self._used else logging.INFO, "the session for jobs has ended: another one is opened")
            self._drop_job()
        if self._job is None:
            conn = self._connect()
            # What takes prepared statements away would become one.
            conn.prepare_threshold = None
            if isinstance(conn, PooledConnection) and isinstance(self.transactions, PooledTransactions):
                self.transactions.ours = conn.ours
            elif isinstance(self.transactions, Transactions):
                try:
                    self._cleaning = Cleaning(conn, self._settings.schema, self._settings.tenant_setting)
                    self.transactions.cleaning = self._cleaning
                except BaseException:
                    # Of which it is not known what it is like as new, no job has: nobody would clean it.
                    self._close(conn)
                    raise
            self._job = conn
        if not self._used:
            self._used, self._in_use_at = True, time.monotonic()
        return self._job.pgconn

    def gave_up_job(self, error: psycopg.Error) -> bool:
        """Give up the job's connection if `error` says that another may do better; return whether to try again.

        Where a cleaning was to travel with what has failed, it is done first: by itself it shows whether it was at fault.
        """
        if self._job is None:
            return False
        if not self._job.closed and self._cleaning is not None and self._cleaning.owed is not None:
            self.clean_what_is_owed()
            return True
        if not (self._job.closed or error.sqlstate in USELESS):
            return False
        log.info("the session for jobs is given up: another one is opened", error=clean(str(error), SUMMARY))
        self._drop_job()
        return True

    def reusable(self) -> bool:
        """Whether nothing of the job is still open, or still being carried out, on its connection."""
        return self._job is None or self._job.pgconn.transaction_status == TransactionStatus.IDLE

    def clean(self, kind: str, *, done: bool) -> None:
        """Make the job's connection as new, or do without it: the next job opens another.

        This may be put off until it is known what comes next, if what was left can hardly be anything that others wait for: a
        lock, say.
        """
        used, self._used = self._used, False
        self._soon_in_use[kind] = used and self._in_use_at - self._idle_at < SOON
        self._idle_at = time.monotonic()
        self.clean_what_is_owed()
        if not used or self._cleaning is None:
            # Without one behind a pooler, where the session is not ours and each transaction has left it as new.
            return
        self._clean_runs[kind] += 1
        context = contextvars.copy_context()

        def tell(left: str) -> None:
            # Of the run that has left it, and perhaps in the middle of another.
            context.run(self._tell, kind, left)

        if not done or self._clean_runs[kind] <= FIRST_RUNS or self._clean_runs[kind] % ONE_OF == 0:
            self._clean(self._cleaning, tell, thoroughly=True)
        else:
            self._cleaning.put_off(tell)

    def next_is(self, kind: str) -> None:
        """Do at once what was put off, unless a job of `kind` soon begins a transaction: the message for that brings it along.

        By itself it costs as much as any other message of a job.
        """
        if not self._soon_in_use.get(kind, False):
            self.clean_what_is_owed()

    def clean_what_is_owed(self) -> None:
        """Do at once what was put off, if anything."""
        if self._cleaning is not None and self._cleaning.owed is not None:
            self._clean(self._cleaning, self._cleaning.owed, thoroughly=False)

    def _clean(self, cleaning: Cleaning, tell: Callable[[str], None], *, thoroughly: bool) -> None:
        try:
            if left := cleaning.clean(thoroughly=thoroughly):
                tell(left)
        except psycopg.Error as error:
            log.warning("the job's session can't be cleaned: the next job has another", error=clean(str(error), SUMMARY))
            self._drop_job()

    def _tell(self, kind: str, left: str) -> None:
        # From now on its sessions are looked at as those of its first runs.
        self._clean_runs[kind] = 0
        log.warning("the job left something in its session: it is taken away", left=left)

    def _connect(self) -> Connection[tuple[Any, ...]]:
        if self._pool.closed:
            self._pool.open()
        conn = self._pool.getconn()
        if isinstance(conn, PooledConnection):
            conn.adopt(self._application, LOCAL, mark=self._application)
        self._sockets[conn.pgconn.socket] = _identity(conn.pgconn.socket)
        return conn

    def _drop_job(self) -> None:
        self._close(self._job)
        self._job = self._cleaning = None

    def _close(self, conn: Connection[tuple[Any, ...]] | None) -> None:
        if conn is not None:
            conn.close()
            self._pool.putconn(conn)


def _time_for_a_host(conninfo: str) -> float:
    try:
        given = int(conninfo_to_dict(conninfo).get("connect_timeout") or 0)
    except ValueError:
        given = 0  # refused by psycopg, with its own words
    return float(given) if given > 0 else CONNECT_MAY_TAKE


def _identity(fd: int) -> tuple[int, int]:
    try:
        status = os.fstat(fd)
    except OSError:
        return (-1, -1)
    return status.st_dev, status.st_ino
