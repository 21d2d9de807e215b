"""A database of its own for each test, with the two logins that Fencepost's documentation speaks of."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg import Connection, sql
from psycopg.rows import namedtuple_row

from fencepost.jobs.migrate import migrate
from fencepost.jobs.roles import Roles, script
from support.servers import Server
from support.waiting import wait_until


def grants_of_worker(schema: str, worker: str) -> list[str]:
    """Return all that a worker's login needs, as `fencepost migrate --roles` prints it, a statement each."""
    printed = script(schema, Roles(worker=worker), "").splitlines()
    to_worker = f" to {sql.Identifier(worker).as_string()};"
    return [line.strip() for line in printed if " on " in line and line.endswith(to_worker)]


END_SESSIONS = "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = %s"


class Database:
    """One database, and a plain role of its own to work on it. `url` is the owner's, a superuser."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.name = name
        self.worker = f"worker_{name}"
        self.url = server.url(name)
        self.worker_url = server.url(name, self.worker)
        self._owner: Connection[Any] | None = None
        self._opened_at_start = 0

    @classmethod
    def create(cls, server: Server, template: str = "template1") -> Database:
        """Create a database as a copy of `template`, and a role that has no right on anything in it yet."""
        database = cls(server, f"test_{uuid.uuid4().hex[:12]}")
        with psycopg.connect(server.url(), autocommit=True) as conn:
            for text in ("create database {name} template {template}", "create role {worker} login"):
                conn.execute(
                    sql.SQL(text).format(
                        name=sql.Identifier(database.name),
                        template=sql.Identifier(template),
                        worker=sql.Identifier(database.worker),
                    )
                )
        return database

    def conn(self, **arguments: Any) -> Connection[Any]:
        """Return a new connection as owner, in autocommit unless told otherwise: for `with`."""
        return psycopg.connect(self.url, **{"autocommit": True, **arguments})

    def worker_conn(self, **arguments: Any) -> Connection[Any]:
        """Return a new connection as the worker's role, in autocommit unless told otherwise: for `with`."""
        return psycopg.connect(self.worker_url, **{"autocommit": True, **arguments})

    @property
    def owner(self) -> Connection[Any]:
        """The test's own connection as owner, in autocommit: opened once, and again after the server was away."""
        if self._owner is not None and self._opened_at_start != self.server.starts:
            self._owner.close()
        if self._owner is None or self._owner.closed:
            self._owner = self.conn()
            self._opened_at_start = self.server.starts
        return self._owner

    def execute(self, query: str, parameters: Sequence[Any] | dict[str, Any] | None = None) -> list[Any]:
        """Execute a statement as owner and return its rows as named tuples, none where it gives none."""
        cursor = self.owner.cursor(row_factory=namedtuple_row)
        cursor.execute(query, parameters)
        return cursor.fetchall() if cursor.description is not None else []

    def value(self, query: str, parameters: Sequence[Any] | dict[str, Any] | None = None) -> Any:
        """Execute a statement as owner and return the one value that it gives."""
        return self.execute(query, parameters)[0][0]

    def log_lines(self) -> list[str]:
        """Return the lines of the server's log that are about this database."""
        lines = self.server.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line for line in lines if f" {self.name} " in line]

    # ---- what an empty database lacks

    def migrate(self, schema: str = "fencepost") -> None:
        """Create Fencepost's tables."""
        migrate(self.owner, schema)

    def grant(self, schema: str = "fencepost") -> None:
        """Give the worker's role what `fencepost migrate --roles` says, and what `add_test_tables` made."""
        self.owner.execute("\n".join(grants_of_worker(schema, self.worker)))
        if self.value("select exists (select from pg_namespace where nspname = 'test')"):
            text = """
                grant usage on schema test to {worker};
                grant select, insert, update, delete on all tables in schema test to {worker};
            """
            self.owner.execute(sql.SQL(text).format(worker=sql.Identifier(self.worker)))

    def add_test_tables(self) -> None:
        """Create the tables that test handlers write to."""
        self.owner.execute(Path(__file__).with_name("test_tables.sql").read_text(encoding="utf-8"))

    def add_supervisor(self, schema: str = "fencepost", queues: Sequence[str] = ("*",), *, told: bool = True) -> None:
        """Add the row of a supervisor that there is not, which is to be told of what is enqueued."""
        text = """
            insert into {schema}.supervisors (name, host, pid, version, queues, lease, heartbeat, listening, told, state)
            values (%s, 'nowhere', 1, '0', %s, '60 s', '15 s', true, %s, 'running')
        """
        self.owner.execute(sql.SQL(text).format(schema=sql.Identifier(schema)), [uuid.uuid4().hex, list(queues), told])

    def close(self) -> None:
        """Close the test's own connection; it is opened again when it is used."""
        if self._owner is not None:
            self._owner.close()

    def drop(self) -> None:
        """Drop the database, whoever is still connected, and its role."""
        self.close()
        with psycopg.connect(self.server.url(), autocommit=True) as conn:
            # DROP DATABASE itself would look for the end of sessions every tenth of a second only.
            wait_until(
                lambda: conn.execute(END_SESSIONS, [self.name]).fetchone() == (0,),
                what=f"the end of the sessions in {self.name}",
            )
            for text in ("drop database {name} with (force)", "drop role {worker}"):
                conn.execute(sql.SQL(text).format(name=sql.Identifier(self.name), worker=sql.Identifier(self.worker)))
