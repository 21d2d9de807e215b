"""What the server says of a login: what it may not do though it must, and what it may though it should not.

Facts only, read from the catalogs, which everyone may read: what follows from them is for `fencepost.checks` to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from psycopg import AsyncConnection
from psycopg.rows import class_row, tuple_row

from fencepost.jobs.sql import statement

Row = TypeVar("Row")

SET_PRIVILEGE_SINCE = 160000
"""Since this version of the server being a member of a role and being allowed to take it on are two things."""


@dataclass(frozen=True, slots=True)
class Login:
    """As whom a session acts, where, and how many sessions it may have there; a limit is None where there is none."""

    login: str
    acting_as: str
    database: str
    server_limit: int
    role_limit: int | None
    database_limit: int | None
    job_role_exists: bool
    may_set_job_role: bool

    @property
    def sessions_allowed(self) -> int:
        """How many sessions it may have, by whichever limit is the least."""
        return min(limit for limit in (self.server_limit, self.role_limit, self.database_limit) if limit is not None)


@dataclass(frozen=True, slots=True)
class Proxied:
    """Whether a session has kept what was asked of it at its start, and who serves it."""

    kept: bool | None
    backend: int


@dataclass(frozen=True, slots=True)
class MissingRight:
    """Privileges on an object that a role must have and has not, and the grant that cures it."""

    role: str
    object: str
    name: str
    full_name: str
    privileges: str
    cure: str


@dataclass(frozen=True, slots=True)
class HiddenTable:
    """A table of the queue whose row-level security hides rows from a role, and the policy that cures it."""

    role: str
    full_name: str
    cure: str


@dataclass(frozen=True, slots=True)
class Bypass:
    """A role that policies do not apply to (`reason`: superuser, BYPASSRLS or owner), and a table that has some.

    `forced_by` is what makes them apply to an owner, None for the others.
    """

    role: str
    reason: str
    example: str
    forced_by: str | None


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy that binds the role that acts: what it sees by and writes by, each None if it says nothing of that."""

    full_name: str
    sees: str | None
    writes: str | None
    text_types: list[str]


async def schema_is_there(conn: AsyncConnection[Any], schema: str) -> bool:
    """Return whether Fencepost's tables are there at all."""
    return bool(await _value(conn, "schema_is_there", schema))


async def schema_version(conn: AsyncConnection[Any], schema: str) -> int:
    """Return which migration the tables are at, 0 if none is noted."""
    return int(await _value(conn, "schema_version", schema) or 0)


async def login(conn: AsyncConnection[Any], schema: str, job_role: str) -> Login:
    """Return as whom this session acts."""
    to_set = "set" if conn.info.server_version >= SET_PRIVILEGE_SINCE else "member"
    return (await _rows(conn, Login, "login", schema, {"job_role": job_role, "to_set": to_set}))[0]


async def proxied(conn: AsyncConnection[Any], schema: str) -> Proxied:
    """Return what tells a session of the server's from a pooler's."""
    return (await _rows(conn, Proxied, "proxied", schema, {}))[0]


async def missing_rights(conn: AsyncConnection[Any], schema: str, job_role: str) -> list[MissingRight]:
    """Return what the login and the role of its jobs lack."""
    return await _rows(conn, MissingRight, "rights", schema, {"job_role": job_role})


async def hidden_tables(conn: AsyncConnection[Any], schema: str) -> list[HiddenTable]:
    """Return the tables of the queue that row-level security hides."""
    return await _rows(conn, HiddenTable, "hidden", schema, {})


async def bypasses(conn: AsyncConnection[Any], schema: str, roles: list[str]) -> list[Bypass]:
    """Return which of `roles` policies outside the queue do not apply to."""
    return await _rows(conn, Bypass, "bypassing", schema, {"roles": roles, "owners_too": True})


async def policies(conn: AsyncConnection[Any], schema: str, acting_as: str) -> list[Policy]:
    """Return the policies outside the queue that bind a role on what it may use."""
    return await _rows(conn, Policy, "policies", schema, {"acting_as": acting_as})


async def _value(conn: AsyncConnection[Any], verb: str, schema: str) -> Any:
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(statement(verb, schema))
        row = await cursor.fetchone()
    return row[0] if row else None


async def _rows(conn: AsyncConnection[Any], row: type[Row], verb: str, schema: str, arguments: dict[str, Any]) -> list[Row]:
    async with conn.cursor(row_factory=class_row(row)) as cursor:
        await cursor.execute(statement(verb, schema), arguments)
        return await cursor.fetchall()
