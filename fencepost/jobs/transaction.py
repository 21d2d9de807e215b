"""Begin and end a job's transaction, each in one message.

Parameters are put in by the client: only so can several statements travel together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg import AsyncClientCursor, AsyncConnection, ClientCursor, Connection
from psycopg.errors import ReadOnlySqlTransaction
from psycopg.rows import tuple_row

from fencepost.job import JobError, Outcome
from fencepost.jobs.cleaning import STATE, Cleaning
from fencepost.jobs.sql import message, statement

BEGIN = ("begin", "limits", "context")
"""Statements of a begin, behind the cleaning that may travel with it."""

HELD = 1
"""Where `hold` answers among the results of a commit."""


@dataclass(frozen=True, slots=True)
class Held:
    """What names a run to the table: job, fence, and the name of the claim."""

    job_id: int
    fence: int
    name: str

    def arguments(self) -> dict[str, Any]:
        """Return the parameters that name the run."""
        return {"job_id": self.job_id, "fence": self.fence, "name": self.name}


@dataclass(frozen=True, slots=True)
class Context:
    """What is set locally in each transaction of a run. `time_left` is in milliseconds."""

    tenant_setting: str
    tenant: str
    role: str
    time_left: int

    def arguments(self, name: str) -> dict[str, Any]:
        """Return the parameters of limits.sql and context.sql for the claim `name`."""
        return {
            "name": name,
            "tenant_setting": self.tenant_setting,
            "tenant": self.tenant,
            "role": self.role,
            "time_left": str(self.time_left),
        }

    def check(self, found: tuple[Any, ...] | None) -> None:
        """Raise JobError if `found`, which context.sql has answered, is not this."""
        *_, tenant, role = found or (None, None)
        if tenant != self.tenant:
            raise JobError(
                f"{self.tenant_setting} was set to {self.tenant!r} and reads {tenant!r}: "
                "give FENCEPOST_TENANT_SETTING a name that nothing else uses"
            )
        if self.role and role != self.role:
            raise JobError(f"the role {self.role!r} was taken on and reads {role!r}")


class Transactions:
    """Begin and end a job's transactions, in a session of the worker's own.

    `cleaning`, which makes that as new between two jobs, is set as the session is opened.
    """

    cleaning: Cleaning

    def begin(self, conn: Connection[Any], schema: str, held: Held, context: Context) -> None:
        """Begin a transaction of the run.

        Raises ReadOnlySqlTransaction where the server only reads, which it did not before, and JobError if the tenant or the
        role is not what it should be.
        """
        first = self.cleaning.begins()
        cursor = ClientCursor(conn, row_factory=tuple_row)
        cursor.execute(message(schema, *first, *BEGIN), context.arguments(held.name))
        if first:
            self.cleaning.travelled(cursor.set_result(STATE).pgresult)
        see_that_it_writes(cursor.set_result(-2).fetchone())
        context.check(cursor.set_result(-1).fetchone())

    def commit(self, conn: Connection[Any], schema: str, held: Held) -> None:
        """Commit, if the run still holds its job. Raises psycopg errors with sqlstate FP001 (lost) or FP002 (ended itself)."""
        cursor = ClientCursor(conn)
        cursor.execute(statement("commit", schema), held.arguments())
        self.cleaning.committed(cursor.set_result(HELD).fetchone())

    def finish_and_commit(self, conn: Connection[Any], schema: str, held: Held, outcome: Outcome) -> None:
        """Finish the job as done in its own transaction and commit both. Raises as `commit`."""
        cursor = ClientCursor(conn)
        arguments = {**held.arguments(), "result": outcome.result, "max_rss": outcome.max_rss}
        cursor.execute(statement("finish_and_commit", schema), arguments)
        self.cleaning.committed(cursor.set_result(HELD).fetchone())

    async def abegin(self, conn: AsyncConnection[Any], schema: str, held: Held, context: Context) -> None:
        """Begin a transaction of the run, on an AsyncConnection; as `begin`."""
        first = self.cleaning.begins()
        cursor = AsyncClientCursor(conn, row_factory=tuple_row)
        await cursor.execute(message(schema, *first, *BEGIN), context.arguments(held.name))
        if first:
            self.cleaning.travelled((await cursor.set_result(STATE)).pgresult)
        await cursor.set_result(-2)
        see_that_it_writes(await cursor.fetchone())
        await cursor.set_result(-1)
        context.check(await cursor.fetchone())

    async def acommit(self, conn: AsyncConnection[Any], schema: str, held: Held) -> None:
        """Commit on an AsyncConnection, as `commit`."""
        cursor = AsyncClientCursor(conn)
        await cursor.execute(statement("commit", schema), held.arguments())
        await cursor.set_result(HELD)
        self.cleaning.committed(await cursor.fetchone())

    def roll_back(self, conn: Connection[Any], schema: str) -> None:
        """Roll back what is open."""
        conn.execute(statement("roll_back", schema))

    async def aroll_back(self, conn: AsyncConnection[Any], schema: str) -> None:
        """Roll back what is open, on an AsyncConnection."""
        await conn.execute(statement("roll_back", schema))


def see_that_it_writes(begun: tuple[Any, ...] | None) -> None:
    """Raise ReadOnlySqlTransaction if `begun`, which limits.sql has answered, says so."""
    if begun is not None and begun[0]:
        raise ReadOnlySqlTransaction("the server only reads by now")
