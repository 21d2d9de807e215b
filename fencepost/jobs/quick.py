"""Statements that are sent for every job, on a connection that keeps them prepared.

Sent by a cursor of psycopg's, a claim takes the worker as long as it takes the server, with parameters looked up, types guessed
and plans counted each time anew. Here all of that is done once for a connection. The types are those that the server finds in
the statement, so each parameter is cast there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import psycopg
from psycopg import Connection
from psycopg.abc import Transformer
from psycopg.adapt import PyFormat
from psycopg.adapt import Transformer as NewTransformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus

from fencepost.jobs.sql import statement

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Kept:
    """A statement that the session keeps: by which name, and whose values its parameters take, in order."""

    name: bytes
    parameters: tuple[str, ...]
    formats: tuple[PyFormat, ...]


class QuickConnection(Connection[Row]):
    """A connection for the worker's own statements. It waits for each answer without a limit: its supervisor has one."""

    _kept: dict[bytes, Kept]
    _transformer: Transformer

    def plan_once(self, schema: str) -> None:
        """Keep statements with one plan for all values, by the indexes that are made for it. Called once, when connected."""
        self.execute(statement("plan_once", schema))
        self._kept = {}
        self._transformer = NewTransformer(self)

    def row(self, query: bytes, arguments: Mapping[str, Any]) -> tuple[Any, ...]:
        """Execute `query`, and return the one row that it answers with. Raises psycopg.Error."""
        kept = self._kept.get(query) or self._prepare(query)
        values = self._transformer.dump_sequence([arguments[name] for name in kept.parameters], kept.formats)
        result = self.pgconn.exec_prepared(kept.name, values)  # type: ignore[arg-type]  # None is null
        if result.status != ExecStatus.TUPLES_OK:
            raise self._error(result)
        self._transformer.set_pgresult(result)
        return self._transformer.load_row(0, tuple)

    def _prepare(self, query: bytes) -> Kept:
        parameters: list[str] = []

        def numbered(match: re.Match[str]) -> str:
            if match[1] not in parameters:
                parameters.append(match[1])
            return f"${parameters.index(match[1]) + 1}"

        name = f"kept_{len(self._kept)}".encode()
        text = re.sub(r"%\((\w+)\)s", numbered, query.decode())
        result = self.pgconn.prepare(name, text.encode())
        if result.status != ExecStatus.COMMAND_OK:
            raise self._error(result)
        self._kept[query] = Kept(name, tuple(parameters), (PyFormat.TEXT,) * len(parameters))
        return self._kept[query]

    def _error(self, result: Any) -> psycopg.Error:
        error = error_from_result(result)
        # One without a state is libpq's own: there was no answer.
        return error if error.sqlstate else psycopg.OperationalError(str(error))


def row(conn: Connection[Any], query: bytes, arguments: Mapping[str, Any]) -> tuple[Any, ...]:
    """Execute `query` in the quickest way that `conn` has, and return the one row that it answers with."""
    if isinstance(conn, QuickConnection):
        return conn.row(query, arguments)
    with conn.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
        return cursor.execute(query, arguments).fetchall()[0]


def array(values: Iterable[int | datetime]) -> str:
    """Return `values` as the text of an array: a list would be adapted item by item."""
    return f"{{{','.join([str(value) for value in values])}}}"


def text_array(values: Iterable[str]) -> str:
    """Return `values` as the text of an array."""
    return f"{{{','.join([_quoted(value) for value in values])}}}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
