"""What the commands share: settings, a session, and the ways to refuse."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
import psycopg
from psycopg import Connection, errors

from fencepost.jobs.pooler import connect, cure_of
from fencepost.settings import Settings

APPLICATION = "fencepost-cli"
"""Unlike what supervisors and workers call their sessions, by which they are counted and ended."""

PATIENCE = "30000"
"""Milliseconds that a command waits for a statement."""

FAILED = 1
UNUSABLE = 2
WRONG = 78
"""Exit codes: what can't be done, what can't be taken, and settings, schema or rights that are wrong."""

as_json = click.option("--json", "as_json", is_flag=True, help="Answer with one JSON document.")


class Refused(click.ClickException):
    """A command that can't do what it was asked: one line that says what to do, and the exit code."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # a class variable in click, that it reads of the instance


@contextmanager
def database(settings: Settings, **options: str) -> Iterator[Connection[tuple[Any, ...]]]:
    """Open a session in autocommit, bounded in time: options of the server override that."""
    quiet_driver()
    with connect(settings, APPLICATION, **{"statement_timeout": PATIENCE, **options}) as conn:
        yield conn


def quiet_driver() -> None:
    """Keep the driver from logging each attempt: what failed is said once, in our own words."""
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)


def of_database(error: psycopg.Error) -> Refused:
    """Return the refusal that tells of an error of the database. Never with its DETAIL: that may hold a payload."""
    line = error.diag.message_primary or line_of(error)
    match error:
        case errors.InvalidSchemaName() | errors.UndefinedTable() | errors.UndefinedColumn() | errors.UndefinedFunction():
            return Refused(f"schema missing, or older than this code: run `fencepost migrate` ({line})", WRONG)
        case errors.InsufficientPrivilege():
            cure = "`fencepost check` names the GRANT that a worker lacks, the README's Rights what others need"
            return Refused(f"{line} (SQLSTATE 42501): {cure}", WRONG)
        case errors.QueryCanceled() | errors.LockNotAvailable():
            return Refused(f"the database did not answer in time, try again later ({line})")
        case psycopg.OperationalError() if (pooled := cure_of(error)) is not None:
            return Refused(f"a pooler answers: {pooled} ({line})", WRONG)
        case psycopg.OperationalError() if error.sqlstate is None or not error.diag.message_primary:
            return Refused(f"can't reach the database, is FENCEPOST_DATABASE_URL right? {line}")
        case _:
            return Refused(f"{line} (SQLSTATE {error.sqlstate})")


def line_of(error: psycopg.Error) -> str:
    """Return what libpq says in several lines as one, and of several attempts each once."""
    text = " ".join(str(error).split()).replace(" Is the server running on that host and accepting TCP/IP connections?", "")
    return text.rpartition("All failures were: ")[2].removeprefix("- ") or type(error).__name__
