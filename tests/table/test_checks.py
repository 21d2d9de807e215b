"""What refuses a start: each refusal names its cause, and its cure cures it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from importlib.metadata import version

import psycopg
import pytest
from psycopg import AsyncConnection, sql

from fencepost import checks
from fencepost import settings as settings_module
from fencepost.checks import Refusal
from fencepost.settings import Settings
from support.databases import Database
from support.servers import Server

SettingsOf = Callable[..., Settings]

HERE = version("fencepost")

GRANTS = [
    ("usage", "schema", "fencepost"),
    ("select", "table", "fencepost.jobs"),
    ("update", "table", "fencepost.jobs"),
    ("select", "table", "fencepost.job_runs"),
    ("select", "table", "fencepost.schema_version"),
    ("select", "table", "fencepost.supervisors"),
    ("insert", "table", "fencepost.supervisors"),
    ("update", "table", "fencepost.supervisors"),
    ("delete", "table", "fencepost.supervisors"),
    ("execute", "function", "fencepost.enqueue"),
    ("execute", "function", "fencepost.hold"),
    ("execute", "function", "fencepost.finish"),
]


@pytest.fixture
def other_role(server: Server) -> Iterator[str]:
    """A plain role beside the worker's. Named first by tests: what it owns is dropped before it is."""
    name = f"Role-{uuid.uuid4().hex[:8]}"
    with psycopg.connect(server.url(), autocommit=True) as conn:
        conn.execute(sql.SQL("create role {}").format(sql.Identifier(name)))
        yield name
        conn.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


@pytest.fixture
def settings_of(monkeypatch: pytest.MonkeyPatch) -> SettingsOf:
    """Read settings: keywords are FENCEPOST_… variables."""

    def read(**values: str) -> Settings:
        for name, value in values.items():
            monkeypatch.setenv(f"FENCEPOST_{name.upper()}", value)
        return settings_module.read()

    return read


def refusals(url: str, settings: Settings) -> list[Refusal]:
    async def look() -> list[Refusal]:
        async with await AsyncConnection.connect(url, autocommit=True) as conn:
            return await checks.refusals(conn, settings)

    return asyncio.run(look())


def warnings(url: str, settings: Settings) -> list[str]:
    async def look() -> list[str]:
        async with await AsyncConnection.connect(url, autocommit=True) as conn:
            return await checks.warnings(conn, settings)

    return asyncio.run(look())


def only(found: list[Refusal]) -> Refusal:
    assert len(found) == 1, found
    assert all("\n" not in line and line for one in found for line in (one.what, one.cure))
    return found[0]


def protect_a_table(database: Database, *, owner: str | None = None, force: bool = True) -> None:
    database.execute("create table public.invoices (tenant text)")
    database.execute("alter table public.invoices enable row level security")
    if force:
        database.execute("alter table public.invoices force row level security")
    if owner:
        database.execute(f'alter table public.invoices owner to "{owner}"')


# ---- rights


def test_the_documented_grants_are_enough(database: Database, settings_of: SettingsOf) -> None:
    """C117: nothing is refused, and nothing warned of."""
    assert refusals(database.worker_url, settings_of()) == []
    assert warnings(database.worker_url, settings_of()) == []


@pytest.mark.parametrize(("privilege", "kind", "name"), GRANTS, ids=str)
def test_each_right_that_is_missing_is_named_with_a_grant_that_cures_it(
    fresh_database: Database, settings_of: SettingsOf, privilege: str, kind: str, name: str
) -> None:
    """C117: the object, SQLSTATE 42501, and a cure that can be pasted."""
    fresh_database.execute(f"revoke {privilege} on {kind} {name} from {fresh_database.worker}")
    refusal = only(refusals(fresh_database.worker_url, settings_of()))
    assert "42501" in refusal.what
    assert f"{privilege} on {kind} {name}" in refusal.what
    fresh_database.execute(refusal.cure)
    assert refusals(fresh_database.worker_url, settings_of()) == []


def test_a_login_without_any_right_is_told_all_of_them_at_once(empty_database: Database, settings_of: SettingsOf) -> None:
    """C117: one look names them all, and warnings do not fail on them."""
    empty_database.migrate()
    found = refusals(empty_database.worker_url, settings_of())
    assert len(found) == 8
    assert warnings(empty_database.worker_url, settings_of()) == []
    for refusal in found:
        empty_database.execute(refusal.cure)
    assert refusals(empty_database.worker_url, settings_of()) == []


def test_a_role_of_jobs_is_looked_at_too(other_role: str, fresh_database: Database, settings_of: SettingsOf) -> None:
    """C117: the login may take on FENCEPOST_JOB_ROLE, and that may hold and finish."""
    settings = settings_of(job_role=other_role)
    found = refusals(fresh_database.worker_url, settings)
    assert len(found) == 4
    assert any(f"may not take on the role {other_role}" in refusal.what for refusal in found)
    for refusal in found:
        fresh_database.execute(refusal.cure)
    assert refusals(fresh_database.worker_url, settings) == []


def test_a_member_of_the_role_of_jobs_that_may_not_take_it_on_is_refused(
    other_role: str, fresh_database: Database, settings_of: SettingsOf
) -> None:
    """C117: since PostgreSQL 16 these are two things, and a plain grant would leave the one that is missing as it is."""
    if fresh_database.owner.info.server_version < checks.rights.SET_PRIVILEGE_SINCE:
        grant = f'grant "{fresh_database.worker}" to "{other_role}"'
    else:
        grant = f'grant "{other_role}" to "{fresh_database.worker}" with set false'
    fresh_database.execute(f'grant usage on schema fencepost to "{other_role}"')
    fresh_database.execute(f'grant execute on function fencepost.hold, fencepost.finish to "{other_role}"')
    fresh_database.execute(grant)
    settings = settings_of(job_role=other_role)
    refusal = only(refusals(fresh_database.worker_url, settings))
    assert f"may not take on the role {other_role}" in refusal.what
    fresh_database.execute(f'revoke "{fresh_database.worker}" from "{other_role}"')
    fresh_database.execute(refusal.cure)
    assert refusals(fresh_database.worker_url, settings) == []


def test_a_role_of_jobs_that_does_not_exist_is_refused(database: Database, settings_of: SettingsOf) -> None:
    """A misspelt FENCEPOST_JOB_ROLE would fail every job at its first transaction."""
    assert "no such role" in only(refusals(database.worker_url, settings_of(job_role="nobody-knows"))).what


def test_a_schema_of_another_name_and_an_empty_search_path_are_fine(empty_database: Database, settings_of: SettingsOf) -> None:
    """C118: each statement names everything with its schema."""
    empty_database.migrate("Jobs-1")
    empty_database.execute(f"alter role {empty_database.worker} set search_path = ''")
    settings = settings_of(schema="Jobs-1")
    found = refusals(empty_database.worker_url, settings)
    assert any('on schema "Jobs-1"' in refusal.what for refusal in found)
    empty_database.grant("Jobs-1")
    assert refusals(empty_database.worker_url, settings) == []
    assert warnings(empty_database.worker_url, settings) == []


# ---- versions


def test_a_schema_that_is_not_there_is_no_refusal_but_said(empty_database: Database, settings_of: SettingsOf) -> None:
    """C52: a supervisor waits for it."""
    with pytest.raises(checks.SchemaMissing, match="schema missing: run `fencepost migrate`"):
        refusals(empty_database.worker_url, settings_of())


def test_a_schema_that_is_older_is_refused_with_both_versions(fresh_database: Database, settings_of: SettingsOf) -> None:
    """C120: new code on an old schema would burn its jobs."""
    fresh_database.execute("update fencepost.schema_version set version = version - 1")
    refusal = only(refusals(fresh_database.worker_url, settings_of()))
    latest = checks.migrate.latest()
    assert f"version {latest - 1}" in refusal.what
    assert f"version {latest}" in refusal.what
    assert "fencepost migrate" in refusal.cure


def test_a_schema_that_is_newer_is_only_warned_of(fresh_database: Database, settings_of: SettingsOf) -> None:
    """C120: in a rolling deploy old workers meet a newer schema."""
    fresh_database.execute("update fencepost.schema_version set version = version + 1")
    assert refusals(fresh_database.worker_url, settings_of()) == []
    assert [line for line in warnings(fresh_database.worker_url, settings_of()) if "newer" in line]


def test_a_server_that_is_too_old_is_refused(
    database: Database, settings_of: SettingsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything else is asked that it may not know, for the warnings too."""
    monkeypatch.setattr(psycopg.ConnectionInfo, "server_version", property(lambda info: 130022))
    monkeypatch.setattr(checks.rights, "statement", None)
    refusal = only(refusals(database.worker_url, settings_of()))
    assert refusal == Refusal("the server is PostgreSQL 13.22, and Fencepost needs 14 or newer", "upgrade the server")
    assert warnings(database.worker_url, settings_of()) == []


# ---- row-level security on the queue


@pytest.mark.parametrize(
    "policy",
    [
        None,
        "create policy tenant on fencepost.jobs using (tenant_id = current_setting('app.tenant', true))",
        "create policy reads on fencepost.jobs for select using (true)",
        "create policy others on fencepost.jobs to pg_monitor using (true) with check (true)",
    ],
    ids=["no policy", "a tenant's", "only reads", "someone else's"],
)
def test_a_queue_that_hides_jobs_is_refused(fresh_database: Database, settings_of: SettingsOf, policy: str | None) -> None:
    """C68: the worker would idle, and everything would look healthy."""
    fresh_database.execute("alter table fencepost.jobs enable row level security, force row level security")
    if policy:
        fresh_database.execute(policy)
    refusal = only(refusals(fresh_database.worker_url, settings_of()))
    assert "row-level security on fencepost.jobs hides jobs" in refusal.what
    fresh_database.execute(refusal.cure)
    assert refusals(fresh_database.worker_url, settings_of()) == []
    for name in ("narrow", "Narrow too"):
        fresh_database.execute(f'create policy "{name}" on fencepost.jobs as restrictive using (priority = 0)')
    refusal = only(refusals(fresh_database.worker_url, settings_of()))
    fresh_database.execute(refusal.cure)
    assert refusals(fresh_database.worker_url, settings_of()) == []


def test_a_queue_that_hides_jobs_from_its_own_functions_is_refused(
    other_role: str, fresh_database: Database, settings_of: SettingsOf
) -> None:
    """C68: enqueue, hold and finish act as their owner, whom forced security applies to as well."""
    for name in ("enqueue", "hold", "finish"):
        fresh_database.execute(f'alter function fencepost.{name} owner to "{other_role}"')
    fresh_database.execute("alter table fencepost.job_runs enable row level security")
    found = refusals(fresh_database.worker_url, settings_of())
    assert [role in one.what for one, role in zip(found, (other_role, fresh_database.worker), strict=True)] == [True, True]
    for refusal in found:
        fresh_database.execute(refusal.cure)
    assert refusals(fresh_database.worker_url, settings_of()) == []


# ---- a login that policies do not apply to


def test_a_superuser_is_fine_where_there_is_nothing_to_bypass(database: Database, settings_of: SettingsOf) -> None:
    """C66: a database without row-level security has nothing to lose."""
    assert refusals(database.url, settings_of()) == []


def test_a_superuser_is_refused_where_tables_have_policies(fresh_database: Database, settings_of: SettingsOf) -> None:
    """C66: every policy would be void, and nobody be told."""
    protect_a_table(fresh_database)
    assert refusals(fresh_database.worker_url, settings_of()) == []
    refusal = only(refusals(fresh_database.url, settings_of()))
    assert "superuser" in refusal.what
    assert "public.invoices" in refusal.what
    settings = settings_of(allow_bypassrls="yes")
    assert refusals(fresh_database.url, settings) == []
    assert ["superuser" in line for line in warnings(fresh_database.url, settings)] == [True]


def test_a_role_with_bypassrls_is_refused_where_tables_have_policies(fresh_database: Database, settings_of: SettingsOf) -> None:
    """C66: as for a superuser; also if it is only the login, behind another role."""
    protect_a_table(fresh_database)
    fresh_database.execute(f"alter role {fresh_database.worker} bypassrls")
    assert "has BYPASSRLS" in only(refusals(fresh_database.worker_url, settings_of())).what


def test_an_owner_whose_tables_do_not_force_their_policies_is_warned_of(
    fresh_database: Database, settings_of: SettingsOf
) -> None:
    """C66: policies do not apply to a table's owner, unless they are forced."""
    protect_a_table(fresh_database, owner=fresh_database.worker, force=False)
    assert refusals(fresh_database.worker_url, settings_of()) == []
    (line,) = warnings(fresh_database.worker_url, settings_of())
    assert "owns public.invoices" in line
    fresh_database.execute("alter table public.invoices force row level security")
    assert warnings(fresh_database.worker_url, settings_of()) == []


# ---- others at work


ADD_SUPERVISOR = """
    insert into fencepost.supervisors (name, host, pid, version, queues, lease, heartbeat, listening, state, seen_at)
    values (%s, 'there', 1, %s, '{default}', %s, '15 s', true, 'running', now() - %s::interval)
"""


def test_another_supervisor_with_another_lease_is_warned_of(database: Database, settings_of: SettingsOf) -> None:
    """Protocol, rule 14: supervisors of one database share LEASE and HEARTBEAT."""
    database.execute(ADD_SUPERVISOR, ["same", HERE, "60 s", "1 s"])
    database.execute(ADD_SUPERVISOR, ["gone", HERE, "10 s", "1 day"])
    assert warnings(database.worker_url, settings_of()) == []
    database.execute(ADD_SUPERVISOR, ["other", HERE, "30 s", "1 s"])
    (line,) = warnings(database.worker_url, settings_of())
    assert "supervisor other on there has FENCEPOST_LEASE=30" in line


def test_other_versions_are_warned_of_in_a_line_each(database: Database, settings_of: SettingsOf) -> None:
    """However many supervisors have one: in a rolling deploy most have."""
    for name, runs in (("s1", "0.0.1"), ("s2", "0.0.1"), ("s3", HERE), ("s4", "99.0")):
        database.execute(ADD_SUPERVISOR, [name, runs, "60 s", "1 s"])
    first, second = warnings(database.worker_url, settings_of())
    assert first.startswith(f"2 supervisors run Fencepost 0.0.1, and here it is {HERE}: ")
    assert second.startswith(f"1 supervisor runs Fencepost 99.0, and here it is {HERE}: ")


# ---- sessions


def test_a_limit_of_sessions_is_warned_of_from_where_it_is_too_low(fresh_database: Database, settings_of: SettingsOf) -> None:
    """C47: of the server, the role and the database, each with what raises it; a superuser has no limit but the server's."""
    settings = settings_of(concurrency="4")
    name, role = fresh_database.name, fresh_database.worker
    fresh_database.execute(f"alter role {role} connection limit 12")
    fresh_database.execute(f"alter database {name} connection limit 12")
    assert warnings(fresh_database.worker_url, settings) == []
    fresh_database.execute(f"alter role {role} connection limit 11")
    (line,) = warnings(fresh_database.worker_url, settings)
    assert f'may need 12 sessions, and role {role} allows 11: raise it (alter role "{role}" connection limit 12)' in line
    fresh_database.execute(f"alter role {role} connection limit -1")
    fresh_database.execute(f"alter database {name} connection limit 11")
    (line,) = warnings(fresh_database.worker_url, settings)
    assert f'database {name} allows 11: raise it (alter database "{name}" connection limit 12)' in line
    assert warnings(fresh_database.url, settings) == []


def test_sessions_that_the_server_keeps_for_superusers_are_not_counted_on(database: Database, settings_of: SettingsOf) -> None:
    """Two hundred less three: 97 workers are one too many for a plain role, and not for a superuser."""
    assert warnings(database.worker_url, settings_of(concurrency="96")) == []
    (line,) = warnings(database.worker_url, settings_of(concurrency="97"))
    assert "FENCEPOST_CONCURRENCY=97 may need 198 sessions, and the server allows 197: raise max_connections" in line
    assert warnings(database.url, settings_of(concurrency="97")) == []
