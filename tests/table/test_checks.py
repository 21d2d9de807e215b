"""What refuses a start: each refusal names its cause, and its cure cures it."""

from __future__ import annotations

import asyncio
import re
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
    ("execute", "function", "fencepost.enqueue_many"),
    ("execute", "function", "fencepost.hold"),
    ("execute", "function", "fencepost.finish"),
    ("execute", "function", "fencepost.prune"),
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
    assert len(found) == 10
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
    """C68: enqueue, hold, finish and prune act as their owner, whom forced security applies to as well."""
    for name in ("enqueue", "hold", "finish", "prune"):
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


@pytest.mark.parametrize("through", ["itself", "membership", "the role of jobs"])
def test_an_owner_whose_tables_do_not_force_their_policies_is_refused(
    other_role: str, fresh_database: Database, settings_of: SettingsOf, through: str
) -> None:
    """C66: policies do not apply to a table's owner, nor to its members, unless they are forced; the cure forces them all."""
    worker = fresh_database.worker
    settings = settings_of()
    if through != "itself":
        fresh_database.execute(f'grant "{other_role}" to {worker}')
    if through == "the role of jobs":
        fresh_database.execute(f'grant usage on schema fencepost to "{other_role}"')
        fresh_database.execute(f'grant execute on function fencepost.hold, fencepost.finish to "{other_role}"')
        settings = settings_of(job_role=other_role)
    owner = worker if through == "itself" else other_role
    protect_a_table(fresh_database, owner=owner, force=False)
    fresh_database.execute('create table public."Bills" (); alter table public."Bills" enable row level security')
    fresh_database.execute(f'alter table public."Bills" owner to "{owner}"')
    refusal = only(refusals(fresh_database.worker_url, settings))
    role = other_role if through == "the role of jobs" else worker
    assert refusal.what.startswith(f'{role} owns public."Bills", and its row-level security is not forced')
    assert warnings(fresh_database.worker_url, settings) == []
    careless = settings_of(allow_bypassrls="yes")
    assert refusals(fresh_database.worker_url, careless) == []
    assert ["owns public" in line for line in warnings(fresh_database.worker_url, careless)] == [True]
    fresh_database.execute(refusal.cure)
    assert refusals(fresh_database.worker_url, settings_of(allow_bypassrls="no")) == []
    fresh_database.execute(f'drop table public.invoices, public."Bills"; drop owned by "{other_role}"')


def test_a_login_that_owns_is_refused_although_its_jobs_have_another_role(
    other_role: str, fresh_database: Database, settings_of: SettingsOf
) -> None:
    """C66, C72: a connection that a job opens itself is the login's, and no policy would bind it."""
    worker = fresh_database.worker
    fresh_database.execute(
        f"""
        grant "{other_role}" to {worker};
        grant usage on schema fencepost to "{other_role}";
        grant execute on function fencepost.hold, fencepost.finish to "{other_role}";
        """
    )
    protect_a_table(fresh_database, owner=worker, force=False)
    settings = settings_of(job_role=other_role)
    refusal = only(refusals(fresh_database.worker_url, settings))
    assert refusal.what.startswith(f"{worker} owns public.invoices, and its row-level security is not forced")
    fresh_database.execute(refusal.cure)
    assert refusals(fresh_database.worker_url, settings) == []
    fresh_database.execute(f'drop table public.invoices; drop owned by "{other_role}"')


# ---- policies to which no tenant is an error


SETTING = "current_setting('app.tenant', true)"
RAISES = {
    "int": f"tenant = {SETTING}::int",
    "bigint, turned round": f"{SETTING}::bigint = tenant",
    "uuid": f"{SETTING}::uuid = gen_random_uuid()",
    "a boolean": f"not {SETTING}::bool",
    "a domain": f"tenant = {SETTING}::public.tenant_number",
    "a domain with an odd name": f'tenant = {SETTING}::public."Tenant Number"',
    "an array": f"tenant = any({SETTING}::int[])",
    "numeric with modifiers": f"tenant = {SETTING}::numeric(10,0)",
    "by way of varchar": f"tenant = {SETTING}::varchar(20)::int",
    "in a subquery": f"tenant = (select {SETTING}::int)",
    "around a subquery": f"tenant = (select {SETTING})::int",
    "in a subquery with a table": f"exists (select from public.members m where m.id = tenant and m.id = {SETTING}::int)",
    "coalesce, which keeps ''": f"tenant = coalesce({SETTING}, '0')::int",
    "coalesce, afterwards": f"tenant = coalesce({SETTING}::int, 0)",
    "nullif of something else": f"tenant = nullif({SETTING}, '0')::int",
    "trimmed": f"tenant = btrim({SETTING})::int",
    "trimmed, in its own syntax": f"tenant = trim(both from {SETTING})::int",
    "JSON": f"tenant = ({SETTING}::jsonb ->> 'tenant')::int",
    "guarded only by and": f"{SETTING} <> '' and tenant = {SETTING}::int",
    "the setting in capitals": "tenant = current_setting('App.Tenant', true)::int",
    "a case that looks elsewhere": f"case when name = '' then true else tenant = {SETTING}::int end",
    "beside a good one": f"tenant = nullif({SETTING}, '')::int or tenant = {SETTING}::int",
    "twice": f"tenant = {SETTING}::int or tenant = {SETTING}::int + 1",
    "beside another literal": f"name <> E'it''s (\\n' and tenant = {SETTING}::int",
    "and never missing": "tenant = current_setting('app.tenant')::int",
}
IS_FINE = {
    "as documented": f"tenant = nullif({SETTING}, '')::int",
    "a trimmed one": f"tenant = nullif(trim({SETTING}), '')::int",
    "text": f"name = {SETTING}",
    "cast to text": f"name = {SETTING}::varchar(20)",
    "a domain of text": f"name = {SETTING}::public.tenant_name",
    "the column is cast": f"tenant::text = {SETTING}",
    "in a subquery": f"tenant = (select nullif({SETTING}, '')::int)",
    "a case that looks before": f"case when {SETTING} = '' then false else tenant = {SETTING}::int end",
    "another setting": "tenant = nullif(current_setting('app.tenants', true), '')::int",
    "an array of text": f"name = any(string_to_array({SETTING}, ','))",
    "an array of numbers": f"tenant = any(string_to_array({SETTING}, ',')::int[])",
    "by a function": "tenant = public.current_tenant()",
    "in a literal": "name = 'current_setting(''app.tenant''::text)::integer'",
    "none": "true",
}
DEMANDS = {
    "not said to be missing": "name = current_setting('app.tenant')",
    "may not be missing": "name = current_setting('app.tenant', false)",
    "not said to be missing, with nullif": "tenant = nullif(current_setting('app.tenant'), '')::int",
}
"""Each an error (42704) where no tenant was ever set, which somebody may want so; in a job's transaction one always was."""

POLICY_TABLES = """
    create domain public.tenant_number as int;
    create domain public."Tenant Number" as public.tenant_number;
    create domain public.tenant_name as text;
    create function public.current_tenant() returns int language sql stable
        as $$ select nullif(current_setting('app.tenant', true), '')::int $$;
    create table public.members (id int);
    grant select on public.members to public;
"""


def make_policies(database: Database, conditions: dict[str, str], *, again: bool = False) -> None:
    """Make a table for each condition, named after it, with one row and analyzed: so the planner has something to reckon."""
    if not again:
        database.execute(POLICY_TABLES)
    for name, condition in conditions.items():
        database.execute(
            f"""
            create table public."{name}" (tenant int, name text);
            insert into public."{name}" values (1, '1');
            analyze public."{name}";
            alter table public."{name}" enable row level security;
            create policy "by tenant" on public."{name}" using ({condition});
            grant select on public."{name}" to {database.worker};
            """
        )


def errors_without_a_tenant(database: Database, tables: dict[str, str]) -> dict[str, set[str]]:
    """Return with which SQLSTATEs a worker reads each table before any tenant was set, and after one has ended."""
    found: dict[str, set[str]] = {name: set() for name in tables}
    for was_set in (False, True):
        with database.worker_conn() as conn:
            if was_set:
                conn.execute("select set_config('app.tenant', '1', true)")
            for name in tables:
                try:
                    conn.execute(f'select from public."{name}"')
                except psycopg.Error as error:
                    found[name].add(error.sqlstate or "")
    return found


def test_a_policy_that_can_be_an_error_is_refused_and_its_cure_makes_no_tenant_no_row(
    fresh_database: Database, settings_of: SettingsOf
) -> None:
    """C63: refused is just what the server raises on, and each cure is carried out and asked again."""
    make_policies(fresh_database, RAISES)
    raised = errors_without_a_tenant(fresh_database, RAISES)
    assert [name for name in RAISES if not raised[name]] == []
    found = {
        re.search(r'on public\."?(.*?)"? (?:casts|reads)', one.what)[1]: one
        for one in refusals(fresh_database.worker_url, settings_of())
    }
    assert sorted(found) == sorted(RAISES)
    with fresh_database.conn(options="-c search_path=") as other_path:
        for name, refusal in found.items():
            said = set(re.findall(r"SQLSTATE (\w{5})", refusal.what))
            assert raised[name] - {"42704"} == said, (name, raised[name], refusal)
            assert refusal.what.count("casts") <= 1, "each fault is told once"
            other_path.execute(only([refusal]).cure)
    assert refusals(fresh_database.worker_url, settings_of()) == []
    assert [states for states in errors_without_a_tenant(fresh_database, RAISES).values() if states] == []


def test_a_policy_that_is_no_error_is_not_refused(fresh_database: Database, settings_of: SettingsOf) -> None:
    """C63: as documented, or by a way that can't be judged."""
    make_policies(fresh_database, IS_FINE)
    assert errors_without_a_tenant(fresh_database, IS_FINE) == {name: set() for name in IS_FINE}
    make_policies(fresh_database, DEMANDS, again=True)
    assert errors_without_a_tenant(fresh_database, DEMANDS) == {name: {"42704"} for name in DEMANDS}
    assert refusals(fresh_database.worker_url, settings_of()) == []


def test_only_policies_that_bind_the_role_are_judged(
    other_role: str, fresh_database: Database, settings_of: SettingsOf
) -> None:
    """C63: where it has the right that they are for; and its with check is cured too."""
    worker = fresh_database.worker
    fresh_database.execute(
        f"""
        create schema "Shop";
        create table "Shop".orders (tenant int);
        alter table "Shop".orders enable row level security;
        create policy tenants on "Shop".orders for insert with check (tenant = {SETTING}::int);
        create policy others on "Shop".orders to "{other_role}" using (tenant = {SETTING}::int);
        grant usage on schema "Shop" to {worker};
        grant select, update, delete on "Shop".orders to {worker}, "{other_role}";
        """
    )
    assert refusals(fresh_database.worker_url, settings_of()) == [], "it may not insert, and the other policy is not its"
    fresh_database.execute(f'grant insert (tenant) on "Shop".orders to {worker}; revoke usage on schema "Shop" from {worker}')
    assert refusals(fresh_database.worker_url, settings_of()) == [], "it can't get there"
    fresh_database.execute(f'grant usage on schema "Shop" to {worker}; alter table "Shop".orders owner to {worker}')
    careless = settings_of(allow_bypassrls="yes")
    assert refusals(fresh_database.worker_url, careless) == [], "it owns it, and is not bound"
    fresh_database.execute('alter table "Shop".orders owner to current_user')
    fresh_database.execute(f'grant select, insert (tenant), update on "Shop".orders to {worker}')
    assert refusals(fresh_database.worker_url, settings_of(tenant_setting="my.tenant")) == []
    assert refusals(fresh_database.worker_url, settings_of(tenant_setting="")) == []
    settings = settings_of(tenant_setting="app.tenant", allow_bypassrls="no")
    refusal = only(refusals(fresh_database.worker_url, settings))
    assert refusal.what.startswith('policy tenants on "Shop".orders casts app.tenant to integer without nullif')
    assert "using" not in refusal.cure
    fresh_database.execute(refusal.cure)
    assert refusals(fresh_database.worker_url, settings) == []

    fresh_database.execute(f'grant "{other_role}" to {worker}')
    both = "alter policy others on \"Shop\".orders with check (tenant = 1 or tenant > current_setting('app.tenant')::int)"
    fresh_database.execute(both)
    refusal = only(refusals(fresh_database.worker_url, settings))
    assert "22P02" in refusal.what
    fresh_database.execute(refusal.cure)
    assert refusals(fresh_database.worker_url, settings) == []
    fresh_database.execute(f'drop schema "Shop" cascade; drop owned by "{other_role}"')


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
