"""`fencepost check`: what would refuse a start, before it does."""

from __future__ import annotations

import asyncio
import os
import socket
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
from fencepost.cli.base import APPLICATION, WRONG, as_json, line_of, of_database, quiet_driver
from fencepost.cli.output import duration, say, say_json, visible
from fencepost.cli.tables import tell_tables
from fencepost.jobs import rights
from fencepost.jobs.pooler import aconnect, cure_of
from fencepost.settings import Settings, WrongSettings

CANNOT_START = 70
LEAVING = 2
"""Seconds that a supervisor takes to leave, beyond its drain and the grace of what it stops."""

STATEMENT_LIMIT, LOCK_LIMIT = "5000", "2500"
"""Milliseconds, as a supervisor waits at its start."""

ANSWER_LIMIT = 8.0
"""Seconds for all that is asked of a database which has let us in, and then may freeze."""


@dataclass(slots=True)
class Found:
    """What was found out. What could not be is None."""

    refusals: list[Refusal] = field(default_factory=list)
    handlers_error: str | None = None
    warnings: list[str] = field(default_factory=list)
    server: str | None = None
    login: str | None = None
    schema_version: int | None = None
    sessions_allowed: int | None = None
    memory_limit: int | None = None
    cpu_limit: float | None = None
    task_limit: int | None = None
    limits: str = ""


@click.command()
@click.option("--tables", is_flag=True, help="List which tables are protected from jobs of other tenants, and check nothing.")
@as_json
def check(*, tables: bool, as_json: bool) -> int:
    """Check what a start needs, and name every refusal with its cure.

    Looks at the settings, the database, its schema and its version, the rights of the login and of FENCEPOST_JOB_ROLE,
    row-level security that would hide the queue, a login or role that bypasses the row-level security of other tables,
    policies that fail where no tenant is set, and whether the handlers import, tried in a process of their own.
    `fencepost run` refuses for the same reasons, but waits where the database or the schema is not there yet. Then it
    warns of what is allowed but may go wrong: settings and versions of other supervisors, too few sessions, and the
    container's limits. Leaves with 78 if anything refuses, with 70 if it is only the handlers.

    \b
    The document of --json has these keys; what can't be known is null:
      ok                  whether nothing refuses
      refusals            list of what, cure, and run_waits: `fencepost run` waits
      handlers_error      why the handlers don't import
      warnings            list of lines
      server, login       the server's version, and as whom it was asked
      schema, schema_version
      sessions_at_most    what a supervisor with its workers may need
      sessions_allowed    what the server, the role and the database allow
      memory_limit, cpu_limit, task_limit
                          the container's: bytes, cores, processes and threads
      grace_period_above  seconds that the container must have to stop
      retention           seconds that jobs are kept which are done or cancelled, 0 for ever
      unknown_variables   FENCEPOST_ variables that are no settings

    With --tables it judges nothing and leaves with 0 if it could look. It lists each table, view and foreign table
    outside the queue on which jobs have any right, as FENCEPOST_JOB_ROLE or else as the login: protected if row-level
    security is enabled, applies to that role, and lets rows through only by policies that read FENCEPOST_TENANT_SETTING,
    in their own text or in a function that they call; else why it is not. A view reads tables as its owner does, unless
    it is a security_invoker, and is protected if they are. The document then has these keys:

    \b
      acting_as           as whom jobs work
      tenant_setting      what policies must read
      tables              list of name, kind, protected, and why it is not (null if it is)
    """  # noqa: D301  # click's own mark for lines that it must not wrap
    if tables:
        tell_tables(as_json=as_json)
        return 0
    try:
        settings = settings_module.read(need_handlers=True)
    except WrongSettings as wrong:
        if not as_json:
            raise
        say_json(_document(None, Found([Refusal(one.what, one.right) for one in wrong.wrong])))
        return WRONG
    found = Found()
    # Before the session: it forks, and looking up the database's name leaves a thread behind.
    _try_handlers(settings, found)
    asyncio.run(_look(settings, found))
    found.warnings += [f"{name} is no setting: is it misspelt?" for name in settings_module.unknown_names()]
    if as_json:
        say_json(_document(settings, found))
    else:
        say("\n".join(_lines(settings, found)))
    if found.refusals:
        return WRONG
    return 0 if found.handlers_error is None else CANNOT_START


# ---- looking


def _try_handlers(settings: Settings, found: Found) -> None:
    # The other commands need no processes, and come quicker without.
    from fencepost.supervisor import cgroup, container  # noqa: PLC0415
    from fencepost.supervisor.trial import try_import  # noqa: PLC0415

    cgroup.start()
    with _stdout_for_answers_only():
        wrong = try_import(settings)
    if isinstance(wrong, Refusal):
        found.refusals.append(wrong)
    else:
        found.handlers_error = wrong
    if found.handlers_error is not None and cgroup.counted_an_oom_kill():
        found.handlers_error += ", out of memory"
    here = container.look()
    found.warnings += container.warnings(here, settings, container.memory_in_use() if found.handlers_error is None else None)
    found.memory_limit, found.cpu_limit, found.task_limit = here.limits.memory, here.limits.cpus, here.limits.tasks
    found.limits = container.description(here.limits)


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


async def _look(settings: Settings, found: Found) -> None:
    quiet_driver()
    try:
        conn = await aconnect(settings, APPLICATION, statement_timeout=STATEMENT_LIMIT, lock_timeout=LOCK_LIMIT)
    except psycopg.Error as error:
        if (cure := cure_of(error)) is not None:
            found.refusals.append(Refusal(f"a pooler answers: {line_of(error)}", cure))
            return
        cure = "start it, let this login in, or correct FENCEPOST_DATABASE_URL"
        found.refusals.append(Refusal(f"can't reach the database: {line_of(error)}", cure, run_waits=True))
        return
    async with conn:
        deadline = asyncio.get_running_loop().call_later(ANSWER_LIMIT, _hang_up, conn)
        try:
            await _look_at(conn, settings, found)
        except SchemaMissing as missing:
            found.refusals.append(missing.refusal)
        except psycopg.Error as error:
            found.refusals.append(Refusal(of_database(error).message, "try again", run_waits=True))
        finally:
            deadline.cancel()


def _hang_up(conn: AsyncConnection[Any]) -> None:
    """Let what waits for an answer fail now. Cancelled, it would ask the same server to cancel, and wait for that."""
    with socket.socket(fileno=os.dup(conn.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


async def _look_at(conn: AsyncConnection[Any], settings: Settings, found: Found) -> None:
    found.server = checks.server_version(conn)
    found.login = conn.info.user
    found.refusals += await checks.refusals(conn, settings)
    found.warnings += await checks.warnings(conn, settings)
    if not found.refusals:
        found.schema_version = await rights.schema_version(conn, settings.schema)
        found.sessions_allowed = (await rights.login(conn, settings.schema, settings.job_role)).sessions_allowed


# ---- telling


def _document(settings: Settings | None, found: Found) -> dict[str, Any]:
    grace = None if settings is None else settings.drain_timeout + settings.kill_grace + LEAVING
    return {
        "ok": not found.refusals and found.handlers_error is None,
        "refusals": [asdict(refusal) for refusal in found.refusals],
        "handlers_error": found.handlers_error,
        "warnings": found.warnings,
        "server": found.server,
        "login": found.login,
        "schema": None if settings is None else settings.schema,
        "schema_version": found.schema_version,
        "sessions_at_most": None if settings is None else checks.sessions(settings),
        "sessions_allowed": found.sessions_allowed,
        "memory_limit": found.memory_limit,
        "cpu_limit": found.cpu_limit,
        "task_limit": found.task_limit,
        "grace_period_above": grace,
        "retention": None if settings is None else settings.retention,
        "unknown_variables": settings_module.unknown_names(),
    }


def _lines(settings: Settings, found: Found) -> list[str]:
    told: list[tuple[str, str]] = []
    if found.server is not None:
        told += [("server", f"PostgreSQL {found.server}"), ("login", str(found.login))]
    if found.schema_version is not None:
        told.append(("schema", f"{settings.schema}, version {found.schema_version}"))
    if found.handlers_error is None:
        told.append(("handlers", "import"))
    allowed = "" if found.sessions_allowed is None else f", and this login may have {found.sessions_allowed}"
    told.append(("sessions", f"at most {checks.sessions(settings)}{allowed}"))
    if found.limits:
        told.append(("container", found.limits))
    grace = settings.drain_timeout + settings.kill_grace + LEAVING
    told.append(("grace", f"give the container more than {grace:g} s to stop"))
    kept = f"for {duration(settings.retention)}" if settings.retention else "for ever"
    told.append(("retention", f"done and cancelled jobs are kept {kept}"))
    told += [("warning", line) for line in found.warnings]
    for refusal in found.refusals:
        told += [("refused", refusal.what), ("  cure", refusal.cure)]
        if refusal.run_waits:
            told.append(("  run", "waits for it"))
    if found.handlers_error is not None:
        told.append(("refused", "the handlers don't import"))
        told += [("", line) for line in found.handlers_error.splitlines()]
    refused = len(found.refusals) + (found.handlers_error is not None)
    lines = [visible(f"{word:<10}{text}") for word, text in told]
    return [*lines, f"{refused} to cure before a start" if refused else "nothing refuses a start"]
