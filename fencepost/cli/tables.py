"""`fencepost check --tables`: which tables row-level security keeps a job of one tenant from another's rows in."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import groupby

from fencepost import settings as settings_module
from fencepost.checks import bypass_of
from fencepost.cli.base import WRONG, Refused, database
from fencepost.cli.output import say, say_json, table, visible
from fencepost.jobs import tables as facts
from fencepost.jobs.tables import Reached
from fencepost.settings import Settings


@dataclass(frozen=True, slots=True)
class Listed:
    """A relation that jobs can reach. `why` says why it is not protected, and is None if it is."""

    name: str
    kind: str
    protected: bool
    why: str | None


def tell_tables(*, as_json: bool) -> None:
    """List what jobs have any right on, protected or not."""
    settings = settings_module.read()
    if not settings.tenant_setting:
        raise Refused("FENCEPOST_TENANT_SETTING is empty: without tenants there is none to be kept from another's rows", WRONG)
    with database(settings) as conn:
        role = facts.acting_as(conn, settings.schema, settings.job_role)
        if role is None:
            raise Refused(f"FENCEPOST_JOB_ROLE={settings.job_role}: there is no such role", WRONG)
        found = listed(facts.reached(conn, settings.schema, role, settings.tenant_setting), settings.tenant_setting)
    if as_json:
        tables = [asdict(one) for one in found]
        say_json({"acting_as": role, "tenant_setting": settings.tenant_setting, "tables": tables})
    else:
        say("\n".join(_lines(found, role, settings)))


def listed(found: list[Reached], tenant_setting: str) -> list[Listed]:
    """Return a line for each relation: a view is protected if all that it reads is."""
    lines = []
    for (name, kind), group in groupby(found, lambda one: (one.full_name, one.kind)):
        reasons = [_reason(one, tenant_setting) for one in group]
        why = next((reason for reason in reasons if reason is not None), None)
        lines.append(Listed(name, kind, why is None, why))
    return lines


def _reason(one: Reached, tenant_setting: str) -> str | None:
    why = _why_not(one, tenant_setting)
    if why is None or one.behind in {None, one.full_name}:
        return why
    return f"reads {one.behind} as {one.role}: {why}"


def _why_not(one: Reached, tenant_setting: str) -> str | None:
    if one.behind is None or one.role is None:
        return "reads no table that can be seen here"
    if one.behind_kind == "m":
        return "a materialized view has no row-level security: it keeps what its owner saw"
    if one.behind_kind == "f":
        return "a foreign table has no row-level security here"
    if not one.enabled and one.protected_parent is not None:
        return f"no row-level security of its own, and that of {one.protected_parent} does not apply to who comes directly"
    if not one.enabled:
        return "no row-level security"
    if one.bypass is not None:
        return bypass_of(one.role, one.bypass)
    if not one.has_policy:
        return f"no policy permits {one.role} anything: it shows nothing"
    if one.opened_by is not None and one.has_tenant_policy:
        how = ", using (true)" if one.opened_to_all else ""
        return f"policy {one.opened_by} lets rows through beside the tenant's{how}"
    if one.opened_by is not None:
        return f"policy {one.opened_by} lets rows through without reading {tenant_setting}"
    if one.may_truncate:
        return f"{one.role} may truncate it, which no policy keeps it from"
    return None


def _lines(found: list[Listed], role: str, settings: Settings) -> list[str]:
    whose = "FENCEPOST_JOB_ROLE" if settings.job_role else "the login"
    if not found:
        return [visible(f"jobs work as {role}, {whose}, which has no right on any table outside the queue")]
    protected = sum(one.protected for one in found)
    return [
        visible(f"jobs work as {role}, {whose}; policies read the tenant from {settings.tenant_setting}"),
        "",
        table(
            ["table", "kind", "protected", "why not"],
            [[one.name, one.kind, "yes" if one.protected else "no", one.why or ""] for one in found],
        ),
        "",
        f"{protected} of {len(found)} are protected",
    ]
