"""The roles and grants that we recommend, as SQL for a DBA to read and to run. Nothing here sends it.

The file is what is printed, with its comments: it can be run as it stands, and other names are put in.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, fields
from importlib import resources

from psycopg import sql

from fencepost.jobs.sql import in_schema

NAME_BYTES = 63


@dataclass(frozen=True, slots=True)
class Roles:
    """Their names: who owns the tables, who works, who enqueues, and as whom jobs work."""

    owner: str = "fencepost_owner"
    worker: str = "fencepost_worker"
    enqueuer: str = "fencepost_enqueuer"
    job: str = "fencepost_job"

    def names(self) -> list[str]:
        """Return all of them."""
        return [getattr(self, field.name) for field in fields(self)]


DEFAULT = Roles()


def wrong(schema: str, roles: Roles) -> str | None:
    """Return what is wrong with the names, None if nothing is."""
    names = roles.names()
    for name in (schema, *names):
        if not name.isprintable() or "$" in name or not 1 <= len(name.encode()) <= NAME_BYTES:
            return f"{name!r} can't stand in it: a name has 1 to {NAME_BYTES} bytes, all of them to be seen, and no dollar sign"
    if len(set(names)) < len(names):
        return f"these must be four roles, since one that is two has the rights of both: {', '.join(names)}"
    return None


def script(schema: str, roles: Roles, tenant_setting: str) -> str:
    """Return the SQL that makes `roles` and gives them what they need of the tables in `schema`, with its comments."""
    text = resources.files(__package__).joinpath("roles.sql").read_text(encoding="utf-8")
    if tenant_setting:
        text = text.replace("app.tenant", tenant_setting)
    given = dict(zip(DEFAULT.names(), roles.names(), strict=True))
    one = "|".join(given)
    parts = re.split(rf"('-c role=.*?'|'(?:{one})'|\b(?:{one})\b)", text)
    return "".join(_part(part, schema, given) for part in parts).rstrip("\n")


def _part(part: str, schema: str, given: dict[str, str]) -> str:
    """Return a part with other names put in. What has its own name stays as it was written, which reads better."""
    if part.startswith("'-c role="):
        # A session's option as a shell takes it, and no SQL name.
        return shlex.quote("-c role=" + re.sub(r"([\\\s])", r"\\\1", given[DEFAULT.owner]))
    default = part.strip("'")
    if default in given:
        name = given[default]
        return part if name == default else (sql.Literal if part.startswith("'") else sql.Identifier)(name).as_string()
    return part if schema == "fencepost" else in_schema(part, schema).as_string()
