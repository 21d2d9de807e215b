"""Bind another connection of a job to its tenant and role, as the job's own transactions are.

Invariant: what is set is set locally, in a transaction that is open, and so ends with it. Where there is none nothing would be
set at all by the next statement, and a job that believes otherwise would work as nobody: that is refused.
"""

from __future__ import annotations

import re
from typing import Any

from psycopg import AsyncClientCursor, AsyncConnection, ClientCursor, Connection
from psycopg.rows import tuple_row

from fencepost.job import JobError
from fencepost.jobs.sql import statement
from fencepost.jobs.transaction import Context

PARAMETER = re.compile(r"%\((\w+)\)s")


def bind(conn: Any, schema: str, name: str, context: Context) -> None:
    """Set tenant and role of `context` in the transaction of `conn`. Raises JobError if none is open, or for another object.

    `conn`: a psycopg Connection, an SQLAlchemy Connection or Session, or what Django or any other DB-API driver connects by.
    """
    set_, read = (_text(verb, schema) for verb in ("context", "bound"))
    arguments = context.arguments(name)
    if isinstance(conn, Connection):
        cursor = ClientCursor(conn, row_factory=tuple_row)
        cursor.execute(set_, arguments)
        found = cursor.execute(read, arguments).fetchone()
    elif _is_of_sqlalchemy(conn):
        conn.execute(_named(set_), arguments)
        found = conn.execute(_named(read), arguments).fetchone()
    elif callable(getattr(conn, "cursor", None)) and not isinstance(conn, AsyncConnection):
        with conn.cursor() as cursor:
            cursor.execute(set_, arguments)
            cursor.execute(read, arguments)
            found = cursor.fetchone()
    else:
        raise _unknown(conn, "bind")
    _check(found, context)


async def abind(conn: Any, schema: str, name: str, context: Context) -> None:
    """Set tenant and role of `context` in the transaction of `conn`, as `bind`.

    `conn`: a psycopg AsyncConnection, or an SQLAlchemy AsyncConnection or AsyncSession.
    """
    set_, read = (_text(verb, schema) for verb in ("context", "bound"))
    arguments = context.arguments(name)
    if isinstance(conn, AsyncConnection):
        cursor = AsyncClientCursor(conn, row_factory=tuple_row)
        await cursor.execute(set_, arguments)
        await cursor.execute(read, arguments)
        found = await cursor.fetchone()
    elif _is_of_sqlalchemy(conn):
        await conn.execute(_named(set_), arguments)
        found = (await conn.execute(_named(read), arguments)).fetchone()
    else:
        raise _unknown(conn, "abind")
    _check(found, context)


def _text(verb: str, schema: str) -> Any:
    return statement(verb, schema).decode()


def _named(text: str) -> Any:
    """Return a statement as SQLAlchemy takes it from whatever driver it has."""
    from sqlalchemy import text as sqlalchemy_text  # noqa: PLC0415  # it is there, since its connection is

    return sqlalchemy_text(PARAMETER.sub(r":\1", text))


def _is_of_sqlalchemy(conn: Any) -> bool:
    return callable(getattr(conn, "execute", None)) and any(
        base.__module__.partition(".")[0] == "sqlalchemy" for base in type(conn).__mro__
    )


def _check(found: Any, context: Context) -> None:
    if found is None or tuple(found) != (context.tenant, True):
        raise JobError("this connection has no transaction open: begin one, and bind it to the job in each of its transactions")


def _unknown(conn: Any, verb: str) -> JobError:
    kind = f"{type(conn).__module__}.{type(conn).__qualname__}"
    return JobError(f"job.{verb} can't bind a {kind}: give a connection or session of psycopg, SQLAlchemy or Django")
