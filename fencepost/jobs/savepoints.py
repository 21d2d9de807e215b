"""The transactions of a job inside a transaction of the caller's: savepoints, that nothing here ever commits.

Invariant: when one has ended, the caller's transaction is as it was but for what the job wrote: the same tenant, role and
settings, and constraints as deferred as before.
"""

from __future__ import annotations

from typing import Any

from psycopg import AsyncClientCursor, AsyncConnection, ClientCursor, Connection
from psycopg.errors import InvalidSavepointSpecification
from psycopg.rows import dict_row, tuple_row

from fencepost.job import Outcome
from fencepost.jobs.finish import finish_arguments
from fencepost.jobs.sql import message, statement
from fencepost.jobs.transaction import Context, Held


class Savepoints:
    """Begin and end a job's transactions; in the place of `Transactions`, and raising the same.

    `in_table` says whether the run's job is in the table. One that is not can't be lost, and has nothing to finish.
    """

    def __init__(self, *, in_table: bool) -> None:
        self._hold = ("hold",) if in_table else ()
        self._finish = ("hold", "finish") if in_table else ()
        self._before: dict[str, Any] = {}

    def begin(self, conn: Connection[Any], schema: str, held: Held, context: Context) -> None:
        """Begin a transaction of the run. No limit of time is set: at its end the server would end the caller's session."""
        arguments = context.arguments(held.name)
        with ClientCursor(conn, row_factory=dict_row) as before:
            self._before = before.execute(statement("snapshot", schema), arguments).fetchall()[0]
        cursor = ClientCursor(conn, row_factory=tuple_row)
        cursor.execute(message(schema, "savepoint", "context"), arguments)
        context.check(cursor.set_result(-1).fetchone())

    def commit(self, conn: Connection[Any], schema: str, held: Held) -> None:
        """Keep what the job wrote, if the run still holds its job."""
        ClientCursor(conn).execute(self._end(schema, self._hold), {**held.arguments(), **self._before})

    def finish_and_commit(self, conn: Connection[Any], schema: str, held: Held, outcome: Outcome) -> None:
        """Keep what the job wrote, and finish the job as done."""
        ClientCursor(conn).execute(self._end(schema, self._finish), self._finish_arguments(held, outcome))

    def roll_back(self, conn: Connection[Any], schema: str) -> None:
        """Roll back what the job wrote. Where its savepoint is gone, so is the caller's transaction, and this one the job's."""
        try:
            ClientCursor(conn).execute(statement("undo", schema))
        except InvalidSavepointSpecification:
            conn.execute(statement("roll_back", schema))

    async def abegin(self, conn: AsyncConnection[Any], schema: str, held: Held, context: Context) -> None:
        """Begin a transaction of the run, on an AsyncConnection."""
        arguments = context.arguments(held.name)
        async with AsyncClientCursor(conn, row_factory=dict_row) as before:
            await before.execute(statement("snapshot", schema), arguments)
            self._before = (await before.fetchall())[0]
        cursor = AsyncClientCursor(conn, row_factory=tuple_row)
        await cursor.execute(message(schema, "savepoint", "context"), arguments)
        await cursor.set_result(-1)
        context.check(await cursor.fetchone())

    async def acommit(self, conn: AsyncConnection[Any], schema: str, held: Held) -> None:
        """Keep what the job wrote; as `commit`."""
        await AsyncClientCursor(conn).execute(self._end(schema, self._hold), {**held.arguments(), **self._before})

    async def aroll_back(self, conn: AsyncConnection[Any], schema: str) -> None:
        """Roll back what the job wrote; as `roll_back`."""
        try:
            await AsyncClientCursor(conn).execute(statement("undo", schema))
        except InvalidSavepointSpecification:
            await conn.execute(statement("roll_back", schema))

    def _finish_arguments(self, held: Held, outcome: Outcome) -> dict[str, Any]:
        return {**finish_arguments(held.job_id, held.fence, held.name, outcome), **self._before}

    @staticmethod
    def _end(schema: str, verbs: tuple[str, ...]) -> Any:
        return message(schema, "check_constraints", *verbs, "release", "restore")
