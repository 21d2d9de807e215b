"""`fencepost migrate`: bring the schema up to date."""

from __future__ import annotations

import click
from psycopg import errors

from fencepost import settings as settings_module
from fencepost.cli.base import WRONG, Refused, as_json, database
from fencepost.cli.output import say, say_json
from fencepost.jobs import migrate as migrations

UNBOUNDED = "0"


@click.command()
@as_json
def migrate(*, as_json: bool) -> None:
    """Bring an empty or older database up to date.

    Creates the schema FENCEPOST_SCHEMA if it is not there, and applies what is missing, each step in a transaction of
    its own. Any number may start at the same time: one works, the others find it done. Waits for locks in short turns,
    so that jobs go on meanwhile. Run it as the role that is to own the tables.
    """
    settings = settings_module.read()
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
