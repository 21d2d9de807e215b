"""Which tables of others a role can reach, and what row-level security does there: facts of the catalogs, as in `rights`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row, tuple_row

from fencepost.jobs.sql import statement


@dataclass(frozen=True, slots=True)
class Reached:
    """A relation that a role has a right on, and one table `behind` it: itself, or one that a view reads.

    `role` is as whom that one is read, and `bypass` why its policies do not apply to that role (superuser, BYPASSRLS or owner).
    `has_policy` and the rest speak of the policies that do, for the commands that may be given. `opened_by` is one that lets
    rows through whatever the tenant is.
    """

    full_name: str
    kind: str
    behind: str | None
    behind_kind: str | None
    role: str | None
    bypass: str | None
    enabled: bool
    protected_parent: str | None
    may_truncate: bool
    has_policy: bool
    has_tenant_policy: bool
    opened_by: str | None
    opened_to_all: bool


def acting_as(conn: Connection[Any], schema: str, role: str) -> str | None:
    """Return as whom jobs work: `role`, or where that is empty this login. None if there is no such role."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(statement("acting_as", schema), {"job_role": role}).fetchone()
    return None if row is None else str(row[0])


def reached(conn: Connection[Any], schema: str, role: str, tenant_setting: str) -> list[Reached]:
    """Return what a role has any right on, outside the queue in `schema`, by name, with all that is behind it."""
    with conn.cursor(row_factory=class_row(Reached)) as cursor:
        arguments = {"acting_as": role, "tenant_setting": tenant_setting}
        return cursor.execute(statement("tables", schema), arguments).fetchall()
