"""Behind a pooler that gives a session away after each transaction (FENCEPOST_POOLER=transaction): nothing is left to one.

Invariant: each transaction of ours says all that it depends on, and takes back all that it, or its job, would leave. It trusts
nothing that it finds. All of that travels in the message that also begins or ends it: the pooler looks for the next client as
soon as a message is answered and no transaction is open.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Self, TypeVar, cast

import psycopg
from psycopg import AsyncClientCursor, AsyncConnection, ClientCursor, Connection, sql
from psycopg.abc import Buffer, Params, Query
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types.datetime import IntervalLoader

from fencepost.job import Outcome
from fencepost.jobs import cleaning
from fencepost.jobs.finish import finish_arguments
from fencepost.jobs.sql import message, statement
from fencepost.jobs.transaction import Context, Held, see_that_it_writes
from fencepost.settings import Settings

Row = TypeVar("Row")

NO_SCHEMA = "fencepost"
"""For statements that name no table."""

READABLE = {"intervalstyle": "postgres", "extra_float_digits": "1"}
"""What our statements need to be read back, beside the style of dates, which the pooler keeps for each client."""

LOCAL = {**READABLE, "client_connection_check_interval": "500"}
"""What a job finds set, as it would in a session of its own."""

THE_STATEMENT = -2
"""Among the results of a message: the one before that of its COMMIT."""

IN_TRANSACTION = (TransactionStatus.INTRANS, TransactionStatus.INERROR)

AS_NEW = (*cleaning.AS_NEW, "forget_plans", *cleaning.RESETS)
"""All that DISCARD ALL does: what others have left in a session's plans is not known."""

_BEGIN = message(NO_SCHEMA, "begin", *cleaning.RESETS)
_COMMIT = message(NO_SCHEMA, "end")
_ROLL_BACK = message(NO_SCHEMA, "roll_back", *cleaning.RESETS, "ours")


@dataclass(frozen=True, slots=True)
class Ours:
    """What a connection's transactions say for themselves: settings `local` to them, and whose they are."""

    tracked: dict[str, str]
    local: dict[str, str] = field(default_factory=dict)
    mark: str = ""
    said: str = ""
    """ours.sql as it is said at a begin, with all of that put in."""

    @classmethod
    def of(cls, conn: Connection[Any] | AsyncConnection[Any], application: str, local: dict[str, str], mark: str) -> Self:
        """Return it for a new connection. What the pooler keeps for its client is as it says now, but for what is ours."""
        told = {name: conn.pgconn.parameter_status(name.encode()) for name in ("TimeZone", "standard_conforming_strings")}
        tracked = {name: value.decode() for name, value in told.items() if value}
        tracked |= {"application_name": application, "client_encoding": "UTF8", "DateStyle": "ISO"}
        found = cls(tracked, {**READABLE, **local}, mark)
        return replace(found, said=_put_in(statement("ours", NO_SCHEMA), found.at_begin(), conn))

    def around(self, query: Query, params: Params | None) -> bytes:
        """Return `query` with all that makes it a transaction of its own. One message: the pooler must not come between."""
        # A percent sign is one only where there are parameters.
        said = self.said if params is None else self.said.replace("%", "%%")
        asked = query.as_bytes() if isinstance(query, sql.Composable) else query
        text = asked if isinstance(asked, bytes) else cast("str", asked).encode()
        return b";\n".join([_BEGIN, said.encode(), text, _COMMIT])

    def at_begin(self) -> dict[str, str]:
        """Return the parameters of ours.sql for a transaction that begins."""
        return {"tracked": json.dumps(self.tracked), "local": json.dumps(self.local), "mark": self.mark}

    def at_end(self) -> dict[str, str]:
        """Return the parameters of ours.sql for one that ends."""
        return {"tracked": json.dumps(self.tracked), "local": "{}", "mark": ""}


class PooledCursor(ClientCursor[Row]):
    """A cursor whose every statement is a transaction of its own, in one message, unless the caller has one open."""

    def execute(
        self, query: Query, params: Params | None = None, *, prepare: bool | None = None, binary: bool | None = None
    ) -> Self:
        """Execute one statement."""
        conn = cast("PooledConnection[Any]", self.connection)
        if conn.pgconn.transaction_status != TransactionStatus.IDLE:
            return super().execute(cast("Any", query), params, prepare=prepare, binary=binary)
        try:
            return super().execute(conn.ours.around(query, params), params).set_result(THE_STATEMENT)
        except psycopg.Error:
            if conn.pgconn.transaction_status in IN_TRANSACTION:
                # What was found set may be why, and its being reset is rolled back as well: read only by default, say.
                with contextlib.suppress(psycopg.Error):
                    ClientCursor(conn).execute(_ROLL_BACK, conn.ours.at_end())
            raise


class AsyncPooledCursor(AsyncClientCursor[Row]):
    """A PooledCursor of an AsyncConnection."""

    async def execute(
        self, query: Query, params: Params | None = None, *, prepare: bool | None = None, binary: bool | None = None
    ) -> Self:
        """Execute one statement; as PooledCursor."""
        conn = cast("AsyncPooledConnection[Any]", self.connection)
        if conn.pgconn.transaction_status != TransactionStatus.IDLE:
            return await super().execute(cast("Any", query), params, prepare=prepare, binary=binary)
        try:
            await super().execute(conn.ours.around(query, params), params)
            return await self.set_result(THE_STATEMENT)
        except psycopg.Error:
            if conn.pgconn.transaction_status in IN_TRANSACTION:
                with contextlib.suppress(psycopg.Error):
                    await AsyncClientCursor(conn).execute(_ROLL_BACK, conn.ours.at_end())
            raise


class IntervalReader(IntervalLoader):
    """Read durations as they are written in our transactions: afterwards the server tells of what was set before."""

    def load(self, data: Buffer) -> timedelta:
        """Return the duration."""
        return self._load_postgres(self, data)


class PooledConnection(Connection[Row]):
    """A connection to a pooler, in autocommit: for statements of our own."""

    ours: Ours

    def adopt(self, application: str, local: dict[str, str], mark: str = "") -> None:
        """Have its statements say what they depend on, and use none that was prepared."""
        self.ours = Ours.of(self, application, local, mark)
        self.adapters.register_loader("interval", IntervalReader)
        self.cursor_factory = PooledCursor
        self.prepare_threshold = None


class AsyncPooledConnection(AsyncConnection[Row]):
    """A PooledConnection for asyncio."""

    ours: Ours

    def adopt(self, application: str, local: dict[str, str], mark: str = "") -> None:
        """Have its statements say what they depend on; as PooledConnection."""
        self.ours = Ours.of(self, application, local, mark)
        self.adapters.register_loader("interval", IntervalReader)
        self.cursor_factory = AsyncPooledCursor
        self.prepare_threshold = None


def connect(settings: Settings, application: str, **options: str) -> Connection[tuple[Any, ...]]:
    """Connect in autocommit, through a pooler or not, with the server's `options` set for all statements of ours."""
    conninfo = settings.conninfo(application, **options)
    if not settings.pooled:
        return psycopg.connect(conninfo, autocommit=True)
    conn: PooledConnection[tuple[Any, ...]] = PooledConnection.connect(conninfo, autocommit=True)
    conn.adopt(application, options)
    return conn


async def aconnect(settings: Settings, application: str, **options: str) -> AsyncConnection[tuple[Any, ...]]:
    """Connect; as `connect`."""
    conninfo = settings.conninfo(application, **options)
    if not settings.pooled:
        return await AsyncConnection.connect(conninfo, autocommit=True)
    conn: AsyncPooledConnection[tuple[Any, ...]] = await AsyncPooledConnection.connect(conninfo, autocommit=True)
    conn.adopt(application, options)
    return conn


def cure_of(error: psycopg.Error) -> str | None:
    """Return what cures an error of connecting that says: a pooler is there, and keeps no sessions."""
    text = str(error)
    if "unsupported startup parameter" in text and "options" in text:
        return "set FENCEPOST_POOLER=transaction, or connect directly"
    return None


class PooledTransactions:
    """A job's transactions on a connection to a pooler; in the place of `Transactions`.

    `ours` is set as the connection is opened.
    """

    ours: Ours

    def begin(self, conn: Connection[Any], schema: str, held: Held, context: Context) -> None:
        """Begin a transaction of the run, in a session as new."""
        cursor = ClientCursor(conn, row_factory=tuple_row)
        cursor.execute(_begin(schema), {**context.arguments(held.name), **self.ours.at_begin()})
        see_that_it_writes(cursor.set_result(-2).fetchone())
        context.check(cursor.set_result(-1).fetchone())

    def commit(self, conn: Connection[Any], schema: str, held: Held) -> None:
        """Commit, if the run still holds its job, and leave nothing in the session. Raises as the direct one."""
        ClientCursor(conn).execute(_end(schema, "hold"), {**held.arguments(), **self.ours.at_end()})

    def finish_and_commit(self, conn: Connection[Any], schema: str, held: Held, outcome: Outcome) -> None:
        """Finish the job as done in its own transaction and commit both. Raises as `commit`."""
        arguments = finish_arguments(held.job_id, held.fence, held.name, outcome)
        ClientCursor(conn).execute(_end(schema, "hold", "finish"), {**arguments, **self.ours.at_end()})

    async def abegin(self, conn: AsyncConnection[Any], schema: str, held: Held, context: Context) -> None:
        """Begin a transaction of the run, on an AsyncConnection."""
        arguments = {**context.arguments(held.name), **self.ours.at_begin()}
        cursor = AsyncClientCursor(conn, row_factory=tuple_row)
        await cursor.execute(_begin(schema), arguments)
        await cursor.set_result(-2)
        see_that_it_writes(await cursor.fetchone())
        await cursor.set_result(-1)
        context.check(await cursor.fetchone())

    async def acommit(self, conn: AsyncConnection[Any], schema: str, held: Held) -> None:
        """Commit on an AsyncConnection, as `commit`."""
        await AsyncClientCursor(conn).execute(_end(schema, "hold"), {**held.arguments(), **self.ours.at_end()})

    def roll_back(self, conn: Connection[Any], schema: str) -> None:
        """Roll back what is open, and leave nothing in the session."""
        ClientCursor(conn).execute(_rolled_back(schema), self.ours.at_end())

    async def aroll_back(self, conn: AsyncConnection[Any], schema: str) -> None:
        """Roll back what is open, on an AsyncConnection."""
        await AsyncClientCursor(conn).execute(_rolled_back(schema), self.ours.at_end())


def _put_in(statement: bytes, arguments: dict[str, str], conn: Connection[Any] | AsyncConnection[Any]) -> str:
    literals = {name: sql.Literal(value).as_string(conn) for name, value in arguments.items()}
    return statement.decode() % literals


def _begin(schema: str) -> bytes:
    return message(schema, "begin", *AS_NEW, "ours", "limits", "context")


def _rolled_back(schema: str) -> bytes:
    # What was found in it is rolled back to as well, and may be why: that it only reads, say.
    return message(schema, "roll_back", *AS_NEW, "ours")


def _end(schema: str, *verbs: str) -> bytes:
    return message(schema, "fire_constraints", *verbs, *AS_NEW, "ours", "end")
