"""Bring the schema up to date, and tell whose version is ahead.

Invariant: each numbered file is applied once, whole, however many start at the same time: all is done under one advisory
lock, and the version is read after it was taken.
"""

from __future__ import annotations

from importlib import resources
from typing import Any, cast

import psycopg
import tenacity
from psycopg import ClientCursor, Connection, IsolationLevel

from fencepost.jobs.sql import in_schema, statement

LOCK_TIMEOUT = "2s"
"""How long a change waits for a table, and so how long claims and enqueues can queue up behind it."""


class NewerSchema(Exception):
    """The database's schema is newer than this code: install the newer Fencepost here too."""


class LockedOut(Exception):
    """The tables are in use by a long transaction: end it, or run `fencepost migrate` again later."""


def latest() -> int:
    """Return the version that this code brings."""
    return max(_files())


def version(conn: Connection[Any], schema: str) -> int | None:
    """Return the version of the schema in the database, or None if it is not there."""
    row = conn.execute(statement("schema_is_there", schema)).fetchone()
    if not row or not row[0]:
        return None
    row = conn.execute(statement("schema_version", schema)).fetchone()
    return int(cast("tuple[int]", row)[0])


def migrate(conn: Connection[Any], schema: str) -> list[int]:
    """Apply what is missing, each file in a transaction of its own, and return the versions that were applied.

    `conn` is in autocommit. Raises NewerSchema if the database is ahead, LockedOut if a table stayed locked for a minute.
    """
    # The version is read after the lock was waited for: a snapshot from before it would show a state that is past.
    conn.isolation_level = IsolationLevel.READ_COMMITTED
    applied: list[int] = []
    patience = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type((psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)),
        wait=tenacity.wait_random(0.5, 1.5),
        stop=tenacity.stop_after_delay(60),
        reraise=True,
    )
    try:
        while (number := patience(_one_step, conn, schema)) is not None:
            applied.append(number)
    except psycopg.errors.LockNotAvailable:
        raise LockedOut(cast("str", LockedOut.__doc__)) from None
    return applied


def _one_step(conn: Connection[Any], schema: str) -> int | None:
    with conn.transaction():
        conn.execute(statement("lock_migrations", schema))
        there = conn.execute(statement("schema_exists", schema)).fetchone()
        if not there or not there[0]:
            conn.execute(statement("create_schema", schema))
        current = version(conn, schema) or 0
        if current > latest():
            raise NewerSchema(
                f"the schema in the database has version {current}, this code has {latest()}: install the newer Fencepost here"
            )
        files = _files()
        missing = sorted(number for number in files if number > current)
        if not missing:
            return None
        ClientCursor(conn).execute(statement("limit_locks", schema), {"timeout": LOCK_TIMEOUT})
        conn.execute(in_schema(files[missing[0]], schema))
        conn.execute(statement("note_version", schema), {"version": missing[0]})
        return missing[0]


def _files() -> dict[int, str]:
    folder = resources.files("fencepost").joinpath("migrations")
    return {
        int(file.name.split("_", 1)[0]): file.read_text(encoding="utf-8")
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    }
