"""What refuses a start, each with its cure: the one list that `fencepost check` shows and `fencepost run` obeys.

A start that could only fail later, or that would idle and look healthy, is refused now. What may come right without this
supervisor's being started anew is no refusal: it waits for it, and says so. That is a database that is away, that only reads,
or that lets nobody in under this name, and a schema that is not there yet. A login that is refused is among them because
roles, passwords and databases are made by others, often at the same time as we start, and because the server gives its reason
in words alone, in its own language, so that a wrong password can't be told from a server that starts up.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import psycopg
from psycopg import AsyncConnection, sql

from fencepost import policies
from fencepost.jobs import migrate, report, rights
from fencepost.settings import Settings

OPTION = "fencepost_job.session"
"""Asked of each session that is ours alone."""

POOLED = "set FENCEPOST_POOLER=transaction, or connect directly"

OLDEST_SERVER = 140000
"""PostgreSQL 14, which is the oldest that has all that the statements use."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What is wrong, and what cures it: a line each. `run_waits`: `fencepost run` does not leave, it waits for the cure."""

    what: str
    cure: str
    run_waits: bool = False


class SchemaMissing(Exception):
    """The tables are not there at all: run `fencepost migrate`."""

    def __init__(self, schema: str) -> None:
        cure = f"run `fencepost migrate`, which makes the tables in schema {schema}"
        self.refusal = Refusal("schema missing", cure, run_waits=True)
        super().__init__(f"{self.refusal.what}: {cure}")


async def refusals(conn: AsyncConnection[Any], settings: Settings) -> list[Refusal]:
    """Return what refuses a start on the database of `conn`, which is in autocommit.

    Raises SchemaMissing if the tables are not there, and what psycopg raises if the database goes away.
    """
    if conn.info.server_version < OLDEST_SERVER:
        what = f"the server is PostgreSQL {server_version(conn)}, and Fencepost needs 14 or newer"
        return [Refusal(what, "upgrade the server")]
    schema = settings.schema
    if OPTION in conn.info.options and not (await rights.proxied(conn, schema)).kept:
        return [Refusal("a pooler answers, and drops what a session is asked for at its start", POOLED)]
    if not await rights.schema_is_there(conn, schema):
        raise SchemaMissing(schema)
    login = await rights.login(conn, schema, settings.job_role)
    missing = await rights.missing_rights(conn, schema, settings.job_role)
    refused = [
        Refusal(
            f"right missing (SQLSTATE 42501): {one.role} needs {one.privileges} on {one.object} {one.full_name}",
            one.cure,
        )
        for one in missing
    ]
    if not _hides_the_version(missing, login.acting_as):
        refused += _older(await rights.schema_version(conn, schema))
    refused += _job_role(settings.job_role, login, conn.info.server_version)
    refused += [
        Refusal(f"row-level security on {one.full_name} hides jobs from {one.role}: the queue would look empty", one.cure)
        for one in await rights.hidden_tables(conn, schema)
    ]
    if not settings.allow_bypassrls:
        refused += [_bypass(one) for one in await _bypasses(conn, settings, login)]
    if settings.tenant_setting:
        binding = await rights.policies(conn, schema, settings.job_role or login.acting_as)
        refused += [refusal for one in binding if (refusal := _policy(one, settings.tenant_setting)) is not None]
    return refused


async def warnings(conn: AsyncConnection[Any], settings: Settings) -> list[str]:
    """Return what does not refuse a start but should be known, a line each. Says less where `refusals` says something."""
    if conn.info.server_version < OLDEST_SERVER:
        return []
    login = await rights.login(conn, settings.schema, settings.job_role)
    lines = await _proxied(conn, settings) + _too_few_sessions(login, settings)
    if settings.allow_bypassrls:
        lines += [bypass_line(one.role, one.reason, one.example) for one in await _bypasses(conn, settings, login)]
    try:
        schema_version = await rights.schema_version(conn, settings.schema)
        others = await report.aliving(conn, settings.schema)
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
        return lines  # `refusals` names it
    if schema_version > migrate.latest():
        lines.append(
            f"the schema has version {schema_version}, and this code knows {migrate.latest()}: "
            "install the newer Fencepost here too"
        )
    return lines + _differences(settings, others)


async def _proxied(conn: AsyncConnection[Any], settings: Settings) -> list[str]:
    if settings.pooled or (await rights.proxied(conn, settings.schema)).backend == conn.info.backend_pid:
        return []
    return [f"a pooler seems to stand before the server: if it pools transactions, {POOLED}; if it keeps sessions, all is well"]


def sessions(settings: Settings) -> int:
    """Return how many sessions a supervisor with its workers has at most."""
    return 4 + 2 * settings.concurrency


def bypass_line(role: str, reason: str, example: str) -> str:
    """Return the line that says of a role that policies do not apply to it."""
    if reason == "owner":
        return f"{role} owns {example}, and its row-level security is not forced on owners: its policies do not apply"
    return f"{bypass_of(role, reason)}, so no row-level security applies to it, though {example} has some"


def bypass_of(role: str, reason: str) -> str:
    """Return in short what it is in a role that policies do not apply to it."""
    if reason == "owner":
        return f"{role} is its owner, and row-level security is not forced on owners"
    return f"{role} is a superuser" if reason == "superuser" else f"{role} has {reason}"


def server_version(conn: psycopg.Connection[Any] | AsyncConnection[Any]) -> str:
    """Return the server's version as people write it."""
    return f"{conn.info.server_version // 10000}.{conn.info.server_version % 10000}"


def _too_few_sessions(login: rights.Login, settings: Settings) -> list[str]:
    if settings.pooled:
        return []  # what the server allows is for the pooler
    needed = sessions(settings)
    limits = {
        "the server": (login.server_limit, "raise max_connections"),
        f"role {login.login}": (login.role_limit, f"raise it (alter role {_name(login.login)} connection limit {needed})"),
        f"database {login.database}": (
            login.database_limit,
            f"raise it (alter database {_name(login.database)} connection limit {needed})",
        ),
    }
    return [
        f"FENCEPOST_CONCURRENCY={settings.concurrency} may need {needed} sessions, and {whose} allows {limit}: "
        f"{cure} or lower FENCEPOST_CONCURRENCY"
        for whose, (limit, cure) in limits.items()
        if limit is not None and limit < needed
    ]


def _differences(settings: Settings, others: list[report.Row]) -> list[str]:
    lines = []
    ours = (settings.lease, settings.heartbeat)
    for other in others:
        theirs = (other["lease"].total_seconds(), other["heartbeat"].total_seconds())
        if theirs != ours:
            lines.append(
                f"supervisor {other['name']} on {other['host']} has FENCEPOST_LEASE={theirs[0]:g} and "
                f"FENCEPOST_HEARTBEAT={theirs[1]:g}, here they are {ours[0]:g} and {ours[1]:g}: set the same on all"
            )
    here = version("fencepost")
    for there, count in sorted(Counter(other["version"] for other in others if other["version"] != here).items()):
        who = "1 supervisor runs" if count == 1 else f"{count} supervisors run"
        lines.append(f"{who} Fencepost {there}, and here it is {here}: bring all to one version, unless a deploy is under way")
    return lines


def _hides_the_version(missing: list[rights.MissingRight], login: str) -> bool:
    return any(one.role == login and (one.object == "schema" or one.name == "schema_version") for one in missing)


def _older(schema_version: int) -> list[Refusal]:
    if schema_version >= migrate.latest():
        return []
    what = f"the schema has version {schema_version}, and this code needs version {migrate.latest()}"
    return [Refusal(what, "run `fencepost migrate`")]


def _job_role(job_role: str, login: rights.Login, server: int) -> list[Refusal]:
    if not job_role:
        return []
    if not login.job_role_exists:
        return [
            Refusal(
                f"FENCEPOST_JOB_ROLE={job_role}: there is no such role",
                f"correct FENCEPOST_JOB_ROLE, or create role {_name(job_role)}",
            )
        ]
    if not login.may_set_job_role:
        what = f"right missing (SQLSTATE 42501): {login.login} may not take on the role {job_role}, FENCEPOST_JOB_ROLE"
        # A member that may not take it on would stay one: what a grant does not name it leaves as it was.
        with_set = " with set true" if server >= rights.SET_PRIVILEGE_SINCE else ""
        return [Refusal(what, f"grant {_name(job_role)} to {_name(login.login)}{with_set}")]
    return []


def _bypass(one: rights.Bypass) -> Refusal:
    line = bypass_line(one.role, one.reason, one.example)
    if one.forced_by is not None:
        # The other ways are a comment in it, so that it can be pasted as it stands.
        others = "work as a role that owns none of them, or set FENCEPOST_ALLOW_BYPASSRLS=yes to do without row-level security"
        return Refusal(line, f"{one.forced_by} -- or {others}")
    return Refusal(line, "log in as a plain role, or set FENCEPOST_ALLOW_BYPASSRLS=yes to do without row-level security")


def _policy(one: rights.Policy, setting: str) -> Refusal | None:
    """Return what is wrong with a policy to which no tenant is an error instead of no row."""
    wrong: list[str] = []
    cured: list[str] = []
    for clause, expression in (("using", one.sees), ("with check", one.writes)):
        faults = _faults(policies.readings(expression or "", setting, one.text_types), setting)
        if faults and expression is not None:
            wrong += faults
            cured.append(f"{clause} ({policies.mended(expression, setting, one.text_types)})")
    if not wrong:
        return None
    what = f"policy {one.full_name} {' and '.join(dict.fromkeys(wrong))}"
    return Refusal(what, f"alter policy {one.full_name} {' '.join(cured)}")


def _faults(readings: list[policies.Reading], setting: str) -> list[str]:
    return [
        f"casts {setting} to {one.cast_to} without nullif, an error (SQLSTATE 22P02) in a job without a tenant and once a "
        "transaction that set it has ended: it reads as '' then"
        for one in readings
        if one.cast_to is not None and not one.guarded
    ]


async def _bypasses(conn: AsyncConnection[Any], settings: Settings, login: rights.Login) -> list[rights.Bypass]:
    roles = {login.login, login.acting_as, *filter(None, [settings.job_role])}
    # The login too where jobs have another role: a connection that a job opens itself is the login's.
    found = await rights.bypasses(conn, settings.schema, sorted(roles))
    acting = settings.job_role or login.acting_as
    # Not once more as a member of the one that owns.
    told = {one.forced_by for one in found if one.role == acting}
    return [one for one in found if one.role == acting or one.forced_by is None or one.forced_by not in told]


def _name(role: str) -> str:
    return sql.Identifier(role).as_string()
