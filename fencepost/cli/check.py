"""`fencepost check`: what would refuse a start, before it does."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import click
import psycopg
from psycopg import AsyncConnection

from fencepost import checks
from fencepost import settings as settings_module
from fencepost.checks import Refusal, SchemaMissing
from fencepost.cli.base import (
    APPLICATION,
    PATIENCE,
    WRONG,
    as_json,
    of_database,
    quiet_driver,
)
from fencepost.cli.output import say, say_json, visible
from fencepost.jobs import rights
from fencepost.settings import Settings

CANNOT_START = 70
LEAVING = 2
"""Seconds that a supervisor takes to leave, beyond its drain and the grace of what it stops."""


@dataclass(slots=True)
class Found:
    """What was found out about the database."""

    refusals: list[Refusal] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    server: str | None = None
    schema_version: int | None = None
    max_connections: int | None = None


@click.command()
@as_json
def check(*, as_json: bool) -> int:
    """Check what a start needs, and name every refusal with its cure.

    Looks at the settings, the database, its schema and its version, the rights of the login and of FENCEPOST_JOB_ROLE,
    row-level security that would hide the queue, a login that bypasses the row-level security of other tables, and
    whether the handlers import, tried in a process of their own. `fencepost run` refuses for the same reasons. Leaves
    with 78 if anything refuses, with 70 if it is only the handlers.
    """
    settings = settings_module.read(need_handlers=True)
    from fencepost.supervisor.trial import try_import  # noqa: PLC0415  # the other commands need no processes

    # Before the session: it forks, and looking up the database's name leaves a thread behind.
    with _stdout_for_answers_only():
        handlers_error = try_import(settings)
    found = asyncio.run(_look(settings))
    sessions = 4 + 2 * settings.concurrency
    if found.max_connections is not None and sessions > found.max_connections:
        found.warnings.append(
            f"FENCEPOST_CONCURRENCY={settings.concurrency} may need {sessions} sessions, and the server allows "
            f"{found.max_connections}: raise max_connections or lower FENCEPOST_CONCURRENCY"
        )
    unknown = settings_module.unknown_names()
    found.warnings += [f"{name} is no setting: is it misspelt?" for name in unknown]
    document = {
        "ok": not found.refusals and handlers_error is None,
        "refusals": [asdict(refusal) for refusal in found.refusals],
        "handlers_error": handlers_error,
        "warnings": found.warnings,
        "server": found.server,
        "schema": settings.schema,
        "schema_version": found.schema_version,
        "sessions_at_most": sessions,
        "max_connections": found.max_connections,
        "grace_period_above": settings.drain_timeout + settings.kill_grace + LEAVING,
        "unknown_variables": unknown,
    }
    if as_json:
        say_json(document)
    else:
        say("\n".join(_lines(document)))
    if found.refusals:
        return WRONG
    return 0 if handlers_error is None else CANNOT_START


@contextmanager
def _stdout_for_answers_only() -> Iterator[None]:
    """Send what a child prints to stderr."""
    if sys.stdout is None:
        yield
        return
    ours = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(ours, 1)
        os.close(ours)


async def _look(settings: Settings) -> Found:
    found = Found()
    quiet_driver()
    try:
        conninfo = settings.conninfo(APPLICATION, statement_timeout=PATIENCE)
        async with await AsyncConnection.connect(conninfo, autocommit=True) as conn:
            await _look_at(conn, settings, found)
    except SchemaMissing as missing:
        found.refusals.append(Refusal(str(missing), "run `fencepost migrate`"))
    except psycopg.Error as error:
        found.refusals.append(Refusal(of_database(error).message, "start it, or correct FENCEPOST_DATABASE_URL"))
    return found


async def _look_at(conn: AsyncConnection[Any], settings: Settings, found: Found) -> None:
    found.server = checks.server_version(conn)
    found.refusals += await checks.refusals(conn, settings)
    if found.refusals:
        return
    found.warnings += await checks.warnings(conn, settings)
    found.schema_version = await rights.schema_version(conn, settings.schema)
    found.max_connections = (await rights.login(conn, settings.schema, settings.job_role)).max_connections


def _lines(document: dict[str, Any]) -> list[str]:
    lines = []
    if document["server"] is not None:
        lines.append(f"server    PostgreSQL {document['server']}")
    if document["schema_version"] is not None:
        lines.append(f"schema    {document['schema']}, version {document['schema_version']}")
    if document["handlers_error"] is None:
        lines.append("handlers  import")
    server_allows = f", and the server allows {document['max_connections']}" if document["max_connections"] is not None else ""
    lines += [
        f"sessions  at most {document['sessions_at_most']}{server_allows}",
        f"grace     give the container more than {document['grace_period_above']:g} s to stop",
    ]
    lines += [f"warning   {line}" for line in document["warnings"]]
    for refusal in document["refusals"]:
        lines += [f"refused   {refusal['what']}", f"  cure:   {refusal['cure']}"]
    lines = [visible(line) for line in lines]
    if document["handlers_error"] is not None:
        lines.append("refused   the handlers do not import")
        lines += [f"  {visible(line)}" for line in document["handlers_error"].splitlines()]
    refused = len(document["refusals"]) + (document["handlers_error"] is not None)
    return [*lines, f"{refused} to cure before a start" if refused else "nothing refuses a start"]
