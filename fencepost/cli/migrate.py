"""`fencepost migrate`: bring the schema up to date."""

from __future__ import annotations

from dataclasses import asdict

import click
from psycopg import errors

from fencepost import settings as settings_module
from fencepost.cli.base import WRONG, Refused, as_json, database
from fencepost.cli.output import say, say_json
from fencepost.jobs import migrate as migrations
from fencepost.jobs.roles import DEFAULT, Roles, script, wrong
from fencepost.settings import Settings

UNBOUNDED = "0"


@click.command()
@click.option("--roles", is_flag=True, help="Print SQL that makes the roles we recommend, with their grants; change nothing.")
@click.option("--owner", metavar="NAME", help=f"With --roles: who owns the tables.  [default: {DEFAULT.owner}]")
@click.option("--worker", metavar="NAME", help=f"With --roles: the login of `fencepost run`.  [default: {DEFAULT.worker}]")
@click.option(
    "--enqueuer", metavar="NAME", help=f"With --roles: may enqueue, get, cancel, retry.  [default: {DEFAULT.enqueuer}]"
)
@click.option(
    "--job-role", metavar="NAME", help=f"With --roles: as whom jobs work.  [default: FENCEPOST_JOB_ROLE, or {DEFAULT.job}]"
)
@as_json
def migrate(
    *, roles: bool, owner: str | None, worker: str | None, enqueuer: str | None, job_role: str | None, as_json: bool
) -> None:
    """Bring an empty or older database up to date.

    Creates the schema FENCEPOST_SCHEMA if it is not there, and applies what is missing, each step in a transaction of
    its own. Any number may start at the same time: one works, the others find it done. Waits for locks in short turns,
    so that jobs go on meanwhile. Run it as the role that is to own the tables.

    --roles asks no database. What it prints can be run again and again: before the first `fencepost migrate` it makes
    the roles, after it it grants what they need of the tables, and after later ones what these have brought.
    """
    settings = settings_module.read()
    names = {"owner": owner, "worker": worker, "enqueuer": enqueuer, "job": job_role}
    given = {name: value for name, value in names.items() if value is not None}
    if roles:
        _tell_roles(settings, given, as_json=as_json)
    elif given:
        raise click.UsageError("names of roles go with --roles")
    else:
        _migrate(settings, as_json=as_json)


def _tell_roles(settings: Settings, given: dict[str, str], *, as_json: bool) -> None:
    roles = Roles(**{**({"job": settings.job_role} if settings.job_role else {}), **given})
    if (why := wrong(settings.schema, roles)) is not None:
        raise click.UsageError(why)
    text = script(settings.schema, roles, settings.tenant_setting)
    if as_json:
        say_json({"schema": settings.schema, "roles": asdict(roles), "sql": text})
    else:
        say(text)


def _migrate(settings: Settings, *, as_json: bool) -> None:
    try:
        # Waiting for another one that migrates has no limit: it is what makes all of them end well.
        with database(settings, statement_timeout=UNBOUNDED) as conn:
            applied = migrations.migrate(conn, settings.schema)
    except migrations.NewerSchema as newer:
        raise Refused(str(newer), WRONG) from None
    except migrations.LockedOut as locked:
        raise Refused(str(locked)) from None
    except errors.InsufficientPrivilege as error:
        line = f"{error.diag.message_primary} (SQLSTATE 42501): migrate as the owner of schema {settings.schema}"
        raise Refused(f"{line}, or as a role that may create it", WRONG) from None
    version = migrations.latest()
    if as_json:
        say_json({"schema": settings.schema, "version": version, "applied": applied})
    elif applied:
        say(f"schema {settings.schema} is at version {version} now; applied: {', '.join(map(str, applied))}")
    else:
        say(f"schema {settings.schema} is at version {version} already")
