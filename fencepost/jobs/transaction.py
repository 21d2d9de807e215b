"""Begin and end a job's transaction, each in one message.

Parameters are put in by the client: only so can several statements travel together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg import AsyncClientCursor, AsyncConnection, ClientCursor, Connection
from psycopg.errors import ReadOnlySqlTransaction, error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus
from psycopg.rows import dict_row

from fencepost.job import JobError, Outcome
from fencepost.jobs.sql import message, statement

RESETS = ("reset_login", "reset_role", "reset_all")
"""Statements that have the settings of a new session."""

AS_NEW = ("forget", "as_new", *RESETS)
"""Statements that do what DISCARD ALL does, in one message."""

WHO = ("the tenant", "a role")
"""What session_state.sql tells of besides settings."""


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

    def check(self, found: dict[str, Any] | None) -> None:
        """Raise JobError if `found`, which context.sql has answered, is not this."""
        tenant, role = (found["tenant"], found["role"]) if found else (None, None)
        if tenant != self.tenant:
            raise JobError(
                f"{self.tenant_setting} was set to {self.tenant!r} and reads {tenant!r}: "
                "give FENCEPOST_TENANT_SETTING a name that nothing else uses"
            )
        if self.role and role != self.role:
            raise JobError(f"the role {self.role!r} was taken on and reads {role!r}")


def begin(conn: Connection[Any], schema: str, held: Held, context: Context) -> None:
    """Begin a transaction of the run.

    Raises ReadOnlySqlTransaction where the server only reads, which it did not before, and JobError if the tenant or the role
    is not what it should be.
    """
    cursor = ClientCursor(conn, row_factory=dict_row)
    cursor.execute(message(schema, "begin", "limits", "context"), context.arguments(held.name))
    see_that_it_writes(cursor.set_result(1).fetchone())
    context.check(cursor.set_result(2).fetchone())


def commit(conn: Connection[Any], schema: str, held: Held) -> None:
    """Commit, if the run still holds its job. Raises psycopg errors with sqlstate FP001 (lost) or FP002 (ended itself)."""
    ClientCursor(conn).execute(statement("commit", schema), held.arguments())


def finish_and_commit(conn: Connection[Any], schema: str, held: Held, outcome: Outcome) -> None:
    """Finish the job as done in its own transaction and commit both. Raises as `commit`."""
    arguments = {**held.arguments(), "result": outcome.result, "max_rss": outcome.max_rss}
    ClientCursor(conn).execute(statement("finish_and_commit", schema), arguments)


async def abegin(conn: AsyncConnection[Any], schema: str, held: Held, context: Context) -> None:
    """Begin a transaction of the run, on an AsyncConnection; as `begin`."""
    cursor = AsyncClientCursor(conn, row_factory=dict_row)
    await cursor.execute(message(schema, "begin", "limits", "context"), context.arguments(held.name))
    await cursor.set_result(1)
    see_that_it_writes(await cursor.fetchone())
    await cursor.set_result(2)
    context.check(await cursor.fetchone())


async def acommit(conn: AsyncConnection[Any], schema: str, held: Held) -> None:
    """Commit on an AsyncConnection, as `commit`."""
    await AsyncClientCursor(conn).execute(statement("commit", schema), held.arguments())


def roll_back(conn: Connection[Any], schema: str) -> None:
    """Roll back what is open."""
    conn.execute(statement("roll_back", schema))


async def aroll_back(conn: AsyncConnection[Any], schema: str) -> None:
    """Roll back what is open, on an AsyncConnection."""
    await conn.execute(statement("roll_back", schema))


def see_that_it_writes(begun: dict[str, Any] | None) -> None:
    """Raise ReadOnlySqlTransaction if limits.sql says so."""
    if begun is not None and begun["only_reads"]:
        raise ReadOnlySqlTransaction("the server only reads by now")


def session_state(conn: Connection[Any], schema: str, tenant_setting: str) -> dict[str, str]:
    """Return what a session is like, in what another job would notice first, by what that is called."""
    cursor = conn.cursor(row_factory=dict_row)
    return cursor.execute(statement("session_state", schema), {"tenant_setting": tenant_setting}).fetchall()[0]


class Cleaning:
    """What makes a session as new after each job, and tells what was left in it. One for each connection, new when made.

    Its messages are the same each time, and are made once: put together by a cursor they would take as long as the server does.
    """

    def __init__(self, conn: Connection[Any], schema: str, tenant_setting: str) -> None:
        self._conn = conn
        self._schema = schema
        self._tenant_setting = tenant_setting
        self._as_new = session_state(conn, schema, tenant_setting)
        arguments = {"tenant_setting": tenant_setting, "role": self._as_new["a role"]}
        self._messages = {
            look: ClientCursor(conn).mogrify(message(schema, look, *AS_NEW), arguments).encode(conn.info.encoding)
            for look in ("session_state", "left_in_session")
        }

    def clean(self, *, thoroughly: bool) -> str:
        """Make the session as new, and return in words what a job has left in it, '' for nothing.

        `thoroughly` looks for all that there may be, and not only for what another job would notice first.

        Raises psycopg.Error, and the session is to be given up.
        """
        look = "left_in_session" if thoroughly else "session_state"
        self._conn.pgconn.send_query(self._messages[look])
        results = self._conn.wait(execute(self._conn.pgconn))
        for result in results:
            if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
                raise error_from_result(result)
        found = {
            (results[0].fname(column) or b"").decode(): (results[0].get_value(0, column) or b"").decode()
            for column in range(results[0].nfields)
        }
        if thoroughly:
            return found["left"]
        if found == self._as_new:
            return ""
        # A server that has read its configuration again has changed them all, and no job has.
        self._as_new = session_state(self._conn, self._schema, self._tenant_setting)
        return in_words([name for name, value in found.items() if value != self._as_new[name]])


def in_words(names: list[str]) -> str:
    """Return what a job has left as `left_in_session` says it: settings, which are told by their names, behind who it was."""
    who = [name for name in WHO if name in names]
    settings = sorted(set(names) - set(WHO))
    return ", ".join(who + ([f"settings ({', '.join(settings)})"] if settings else []))
