"""The command line on a real server, as a shell sees it.

Starting Python takes most of a command's time, so only one of each kind is a process of its own (`shell`); its variants
run the same `main` in this one (`here`).
"""

from __future__ import annotations

import importlib
import json
import os
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from fencepost.cli import main
from fencepost.cli.output import duration
from fencepost.jobs import migrate, report
from fencepost.jobs.roles import Roles
from fencepost.supervisor import cgroup, container, trial
from support import nursery
from support.databases import Database
from support.jobs import Jobs
from support.servers import SUPERUSER, Server
from support.waiting import wait_until

# The package has the command under that name.
check_module = importlib.import_module("fencepost.cli.check")

HANDLERS = """
import sys
from fencepost import handler

print("importing")

@handler("report")
def report(job): ...

@handler("cleanup", tenantless=True)
def cleanup(job): ...
"""

AWAY = "postgresql://127.0.0.1:1/nothing"

ADD_SUPERVISOR = """
    insert into fencepost.supervisors
        (name, host, pid, version, kinds, queues, lease, heartbeat, listening, state, slots, seen_at)
    values (%(name)s, 'host', 7, '1.2.3', %(kinds)s, %(queues)s, '60 s', '15 s', %(listening)s, 'running', %(slots)s,
            clock_timestamp() - %(silent_for)s::interval)
"""


class Shell:
    """Runs `fencepost` on a database. Keyword settings are FENCEPOST_… variables."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url

    def environment(self, **settings: str) -> dict[str, str]:
        given = {f"FENCEPOST_{name.upper()}": value for name, value in settings.items() if name.islower()}
        plain = {name: value for name, value in settings.items() if not name.islower()}
        return {**os.environ, "DATABASE_URL": self.url, **given, **plain}

    def __call__(self, *arguments: str, stdin: bytes = b"", **settings: str) -> subprocess.CompletedProcess[str]:
        return nursery.run(arguments, self.folder, self.environment(**settings), stdin)

    def must(self, *arguments: str, **options: Any) -> str:
        """Run what has to work, and return its answer."""
        done = self(*arguments, **options)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def json(self, *arguments: str, **options: Any) -> Any:
        """Run what has to work, and return the document it answers with."""
        return json.loads(self.must(*arguments, "--json", **options))


class Here(Shell):
    """Runs the same commands in this process; only what needs neither stdin nor processes."""

    def __init__(self, folder: Path, url: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        super().__init__(folder, url)
        self._monkeypatch = monkeypatch
        self._capfd = capfd

    def __call__(self, *arguments: str, stdin: bytes = b"", **settings: str) -> subprocess.CompletedProcess[str]:
        assert not stdin
        with self._monkeypatch.context() as patch:
            for name, value in self.environment(**settings).items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["fencepost", *arguments])
            self._capfd.readouterr()
            with pytest.raises(SystemExit) as left:
                main()
        said = self._capfd.readouterr()
        return subprocess.CompletedProcess(arguments, int(left.value.code or 0), said.out, said.err)

    def on(self, url: str) -> Here:
        """Return the same for another database."""
        return Here(self.folder, url, self._monkeypatch, self._capfd)


@pytest.fixture
def shell(database: Database, tmp_path: Path) -> Shell:
    """The command line of a worker's role on the migrated database."""
    return Shell(tmp_path, database.worker_url)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], database: Database) -> Here:
    """The same in this process."""
    return Here(tmp_path, database.worker_url, monkeypatch, capfd)


@pytest.fixture
def handlers(tmp_path: Path) -> str:
    """A module of handlers in the working directory."""
    (tmp_path / "my_handlers.py").write_text(HANDLERS, encoding="utf-8")
    return "my_handlers"


def refused(done: subprocess.CompletedProcess[str], code: int) -> str:
    """Return the one line of a command that refused."""
    assert done.returncode == code, done
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("fencepost: ")
    return done.stderr


def rows(database: Database) -> int:
    count: int = database.value("select count(*) from fencepost.jobs")
    return count


def quickest(read: Callable[[], object]) -> float:
    """Return the seconds of the quickest of five: what it costs, and not what else the machine did."""
    taken = []
    for _ in range(5):
        began = time.monotonic()
        read()
        taken.append(time.monotonic() - began)
    return min(taken)


def add_at_rest(database: Database, status: str, count: int = 1, *, first_id: int = 1, **columns: Any) -> None:
    """Insert jobs that have ended, by generate_series."""
    names = "".join(f", {name}" for name in columns)
    values = "".join(f", %({name})s" for name in columns)
    database.execute(
        f"""
        insert into fencepost.jobs
            (id, kind, tenant_id, status, attempts, max_attempts, fence, started_at, finished_at{names})
        overriding system value
        select g, 'ok', '1', %(status)s, 1, 1, 1, now(), now(){values}
        from generate_series(%(first)s::bigint, %(first)s + %(count)s - 1) g
        """,
        {"status": status, "first": first_id, "count": count, **columns},
    )


# ---- from nothing


def test_every_verb_works_in_a_schema_of_another_name_with_an_empty_search_path(
    empty_database: Database, tmp_path: Path, handlers: str
) -> None:
    """C118: and nothing of ours lands in public."""
    empty_database.execute(f"alter role {empty_database.worker} set search_path = ''")
    owner, worker = Shell(tmp_path, empty_database.url), Shell(tmp_path, empty_database.worker_url)
    settings = {"schema": "Jobs-1"}
    version = migrate.latest()
    empty_database.execute('create schema "Jobs-1"')
    assert "version" in owner.must("migrate", **settings)
    assert owner.json("migrate", **settings) == {"schema": "Jobs-1", "version": version, "applied": []}
    empty_database.grant("Jobs-1")
    job = worker.must("enqueue", "report", '{"month": "2026-10"}', "--tenant", "2", **settings).strip()
    assert worker.json("list", **settings)["jobs"][0]["id"] == int(job)
    assert worker.json("show", job, **settings)["payload"] == {"month": "2026-10"}
    assert worker.json("status", **settings)["jobs"]["queued"] == 1
    assert worker("check", handlers=handlers, **settings).returncode == 0
    assert empty_database.value("select count(*) from pg_class where relnamespace = 'public'::regnamespace") == 0


def test_five_that_migrate_an_empty_database_at_once_all_end_well(empty_database: Database, tmp_path: Path) -> None:
    """C114: one works, the others find it done."""
    shell = Shell(tmp_path, empty_database.url)
    with ThreadPoolExecutor(5) as pool:
        done = list(pool.map(lambda _: shell("migrate"), range(5)))
    assert [(one.returncode, one.stderr) for one in done] == [(0, "")] * 5
    assert empty_database.value("select count(*) from fencepost.schema_version") == 1


def test_a_missing_schema_is_told_apart_from_a_missing_database(here: Here, empty_database: Database) -> None:
    """C52: each command says which of the two it is, in one line."""
    commands = (["list"], ["show", "1"], ["status"], ["enqueue", "report", "--tenant", "1"])
    empty, away = here.on(empty_database.url), here.on(AWAY)
    for command in commands:
        assert "run `fencepost migrate`" in refused(empty(*command), 78)
    for command in (*commands, ["migrate"]):
        assert "can't reach the database" in refused(away(*command), 1)


def test_a_schema_that_is_ahead_is_not_migrated(fresh_database: Database, tmp_path: Path) -> None:
    """C120: who is ahead is said."""
    fresh_database.execute("update fencepost.schema_version set version = 999")
    assert "version 999" in refused(Shell(tmp_path, fresh_database.url)("migrate"), 78)


def test_a_role_that_may_not_migrate_is_told_who_may(empty_database: Database, tmp_path: Path) -> None:
    """C117: SQLSTATE 42501, and as whom to try again."""
    line = refused(Shell(tmp_path, empty_database.worker_url)("migrate"), 78)
    assert "42501" in line
    assert "migrate as the owner" in line


def test_a_right_that_is_missing_is_named(fresh_database: Database, tmp_path: Path) -> None:
    """C117: the object and SQLSTATE 42501."""
    fresh_database.execute(f"revoke execute on function fencepost.enqueue from {fresh_database.worker}")
    shell = Shell(tmp_path, fresh_database.worker_url)
    line = refused(shell("enqueue", "report", "--tenant", "1"), 78)
    assert "enqueue" in line
    assert "42501" in line


# ---- the roles that are recommended


def made_by(roles: Roles) -> list[str]:
    """Return the arguments that name roles."""
    options = ("--owner", "--worker", "--enqueuer", "--job-role")
    return [*("migrate", "--roles"), *(word for pair in zip(options, roles.names(), strict=True) for word in pair)]


@pytest.fixture
def deployer(roles: Roles, empty_database: Database) -> Iterator[str]:
    """The address of one who may create roles and schemas, and is no superuser."""
    name = f"deployer_{empty_database.name}"
    empty_database.execute(f"create role {name} login createrole")
    empty_database.execute(f"grant create on database {empty_database.name} to {name}")
    yield empty_database.server.url(empty_database.name, name)
    with empty_database.conn() as conn:
        for role in (*roles.names(), name):
            conn.execute(sql.SQL("drop owned by {} cascade").format(sql.Identifier(role)))
        for role in (*roles.names(), name):
            conn.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))


@pytest.mark.parametrize("schema", ["fencepost", "Jobs-1"])
def test_the_recommended_roles_have_what_they_need_and_no_more(
    roles: Roles, deployer: str, empty_database: Database, here: Here, monkeypatch: pytest.MonkeyPatch, schema: str
) -> None:
    """C66, C117: made before the tables and granted after; run again, it changes nothing."""
    monkeypatch.setattr(trial, "try_import", lambda settings: None)
    printed = here.must(*made_by(roles), schema=schema)
    notices: list[str] = []
    (options,) = [shlex.split(line)[1] for line in printed.splitlines() if "PGOPTIONS" in line]

    def run_twice() -> None:
        with psycopg.connect(deployer, autocommit=True) as conn:
            conn.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
            for _ in range(2):
                conn.execute(printed)

    run_twice()
    assert any("the tables are not there yet" in notice for notice in notices)
    here.on(deployer).must("migrate", schema=schema, PGOPTIONS=options.removeprefix("PGOPTIONS="))
    run_twice()
    assert empty_database.execute(
        "select distinct tableowner::text, rolsuper, rolcanlogin from pg_tables join pg_roles on rolname = tableowner"
        " where schemaname = %s",
        [schema],
    ) == [(roles.owner, False, False)]

    worker = empty_database.server.url(empty_database.name, roles.worker)
    document = here.on(worker).json("check", handlers="x", schema=schema, job_role=roles.job, concurrency="1")
    assert (document["refusals"], document["warnings"]) == ([], [])
    empty_database.execute(
        sql.SQL("create table public.orders (); grant select on public.orders to {}")
        .format(sql.Identifier(roles.job))
        .as_string()
    )
    with psycopg.connect(worker, autocommit=True) as conn:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("select from public.orders")
        conn.execute("select set_config('role', %s, false)", [roles.job])
        conn.execute("select from public.orders")

    with empty_database.conn() as conn:
        conn.execute("select set_config('role', %s, false)", [roles.enqueuer])

        def ask(verb: str, *arguments: object) -> tuple[Any, ...]:
            places = sql.SQL(", ").join(sql.Placeholder() * len(arguments))
            call = sql.SQL("select {}.{}({})").format(sql.Identifier(schema), sql.Identifier(verb), places)
            answer = conn.execute(call, arguments).fetchone()
            assert answer
            return answer

        (job,) = ask("enqueue", "report")
        assert ask("cancel", job) == ("cancelled",)
        assert ask("retry", job) == (("queued", None),)
        assert ask("get", job)
        for kept_from in ("jobs", "job_runs", "supervisors", "schema_version"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(sql.SQL("select from {}.{}").format(sql.Identifier(schema), sql.Identifier(kept_from)))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            ask("hold", job, 1, "name")


def test_the_roles_are_printed_without_a_database(here: Here) -> None:
    """By names of choice, in the words of the settings; nothing else is done."""
    away = here.on(AWAY)
    text = away.must("migrate", "--roles")
    assert away.json("migrate", "--roles")["sql"] == text.removesuffix("\n")
    assert "create role fencepost_job nologin;" in text
    assert "nullif(current_setting('app.tenant', true), '')" in text
    told = away.must("migrate", "--roles", "--job-role", "it's", job_role="jobs", tenant_setting="my.tenant")
    assert "rolname = 'it''s'" in told
    assert 'create role "it\'s" nologin;' in told
    assert "PGOPTIONS='-c role=fencepost_owner'" in told
    assert "current_setting('my.tenant', true)" in told
    assert 'create role "jobs" nologin;' in away.must("migrate", "--roles", job_role="jobs")
    for wrong in ("a\nb", "$$", "", "é" * 32, "fencepost_worker"):
        assert "see `fencepost migrate --help`" in refused(away("migrate", "--roles", "--owner", wrong), 2)
    assert "go with --roles" in refused(away("migrate", "--owner", "me"), 2)


# ---- enqueue


@pytest.mark.parametrize(
    "payload",
    [
        "5",
        "null",
        "[1]",
        '"s"',
        "",
        "{",
        '{"a": 1} {"b": 2}',
        '{"twice": 1, "twice": 2}',
        '{"a": {"twice": 1, "twice": 2}}',
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e400}',
        '{"a": 1e-400}',
        '{"a": 0.1000000000000000055}',
        '{"a": 12345678901234567890.5}',
        '{"a": ' + "1" * 5000 + "}",
        '{"x\\u0000": 1}',
        '{"x": "\\u0000"}',
        '{"x": "\\ud800"}',
        '{"a": ' * 20_000 + "1" + "}" * 20_000,
    ],
    ids=lambda payload: payload[:30],
)
def test_a_payload_that_would_arrive_as_something_else_is_refused(payload: str, here: Here, database: Database) -> None:
    """C73, C81: each in one line, with exit code 2, and nothing enqueued."""
    line = refused(here("enqueue", "report", payload, "--tenant", "1"), 2)
    assert len(line) < 300
    assert rows(database) == 0


@pytest.mark.parametrize("sent", [b"", b'{"a": "\xff"}', b" " * (8 * 1024 * 1024 + 1)], ids=["empty", "bytes", "endless"])
def test_a_payload_from_stdin_that_is_none_is_refused(shell: Shell, database: Database, sent: bytes) -> None:
    """C81: and stdin is not read without end."""
    refused(shell("enqueue", "report", "-", "--tenant", "1", stdin=sent), 2)
    assert rows(database) == 0


def test_a_payload_arrives_equal(shell: Shell) -> None:
    """C81: large integers, floats, any text, from an argument and from stdin."""
    payload = {
        "big": 2**70,
        "float": 0.1,
        "small": 1e-300,
        "text": 'é 😀 " \\ \u009b',
        "none": None,
        "deep": [{"a": []}],
    }
    first = shell.json("enqueue", "report", json.dumps(payload), "--tenant", "1")["id"]
    second = shell.must("enqueue", "report", "-", "--tenant", "1", stdin=json.dumps(payload).encode())
    for job in (str(first), second.strip()):
        assert shell.json("show", job)["payload"] == payload


def test_a_payload_at_the_limit_passes_and_one_byte_more_does_not(shell: Shell, database: Database) -> None:
    """C79: the size and the limit are named."""
    at_limit = json.dumps({"text": "é" * ((1024 * 1024 - len('{"text": ""}')) // 2)}, ensure_ascii=False)
    assert len(at_limit.encode()) == 1024 * 1024
    shell.must("enqueue", "report", "-", "--tenant", "1", stdin=at_limit.encode())
    line = refused(shell("enqueue", "report", "-", "--tenant", "1", stdin=at_limit.replace("é", "éx", 1).encode()), 2)
    assert "1048577" in line
    assert "1048576" in line
    assert rows(database) == 1


def test_a_job_without_tenant_is_refused_unless_its_handler_is_tenantless(
    shell: Shell, here: Here, database: Database, handlers: str
) -> None:
    """C64: missing, empty and blank; with and without the handlers known."""
    for options in ([], ["--tenant", ""], ["--tenant", "  "]):
        assert "tenant" in refused(here("enqueue", "cleanup", *options), 2)
    for kind in ("report", "unknown"):
        done = shell("enqueue", kind, handlers=handlers)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"a job of kind '{kind}' needs a tenant" in done.stderr
    assert rows(database) == 0
    done = shell("enqueue", "cleanup", handlers=handlers)
    assert done.returncode == 0
    assert done.stdout.strip().isdigit(), "what the module prints is not an answer"
    shell.must("enqueue", "report", tenant_setting="")
    assert database.execute("select tenant_id from fencepost.jobs") == [(None,), (None,)]


def test_handlers_that_do_not_import_do_not_keep_a_job_with_a_tenant_from_being_enqueued(
    shell: Shell, database: Database
) -> None:
    """Whoever enqueues need not have what handlers need; without a tenant it has to be known."""
    (shell.folder / "broken.py").write_text("import sys; sys.exit('no')", encoding="utf-8")
    line = refused(shell("enqueue", "cleanup", handlers="broken"), 1)
    assert "broken" in line
    assert "SystemExit: no" in line
    shell.must("enqueue", "cleanup", "--tenant", "1", handlers="broken")
    assert rows(database) == 1


def test_a_time_without_offset_is_refused(here: Here, database: Database) -> None:
    """C84: it would be another moment on every machine."""
    for text in ("2026-10-01T08:00:00", "2026-10-01", "tomorrow"):
        refused(here("enqueue", "report", "--tenant", "1", "--run-at", text), 2)
    assert rows(database) == 0


def test_a_time_with_offset_is_the_same_moment_for_every_zone(here: Here, fresh_database: Database) -> None:
    """C84: whatever the role's and the process's zones are."""
    shell = here.on(fresh_database.worker_url)
    moment = datetime.fromisoformat("2026-10-01T08:00:00+02:00")
    for zone in ("Asia/Tokyo", "UTC", "America/St_Johns"):
        fresh_database.execute(f"alter role {fresh_database.worker} set timezone = '{zone}'")
        job = shell.must("enqueue", "report", "--tenant", "1", "--run-at", moment.isoformat(), TZ="America/New_York")
        shown = shell.json("show", job.strip())["run_at"]
        assert datetime.fromisoformat(shown) == moment
        assert shown.endswith("+00:00")


def test_what_is_asked_of_a_job_is_what_it_gets(here: Here) -> None:
    """Durations are written as in the settings."""
    options = "--queue mail --priority -3 --after 2h --max-attempts 7 --max-runtime 90s --unique-key once --tenant t"
    job = here.must("enqueue", "report", *options.split())
    assert here.must("enqueue", "other", *options.split()) == job
    shown = here.json("show", job.strip())
    wanted = {
        "queue": "mail",
        "priority": -3,
        "max_attempts": 7,
        "max_runtime": 90.0,
        "unique_key": "once",
        "tenant_id": "t",
    }
    assert wanted.items() <= shown.items()
    late = datetime.fromisoformat(shown["run_at"]) - datetime.fromisoformat(shown["created_at"])
    assert late.total_seconds() == 7200
    for wrong in ("--after=5x", "--max-runtime=0", "--max-attempts=0", "--priority=x", "--run-at=0001-01-01T00:00:00Z"):
        refused(here("enqueue", "report", "--tenant", "1", wrong), 2)


# ---- list and show


def test_fifty_payloads_at_the_limit_do_not_make_a_list_slow_or_long(here: Here, database: Database) -> None:
    """C79: under a second and 200 kB."""
    text = json.dumps({"text": os.urandom(500_000).hex()})
    database.execute(
        "insert into fencepost.jobs (kind, payload, tenant_id, last_error)"
        " select 'ok', %s, '1', %s from generate_series(1, 50)",
        [text, "x" * 2000],
    )
    with database.worker_conn() as conn:
        assert quickest(lambda: report.page(conn, "fencepost", report.Filters(), 50)) < 0.5
    assert here.must("list").count("\n") == 51
    assert len(here.must("list")) < 200_000
    assert len(here.must("list", "--json")) < 200_000


def test_a_dead_job_is_found_however_old_it_is(here: Here, database: Database) -> None:
    """C102: by its index; without one the list does not read the whole table, and says how far it looked."""
    add_at_rest(database, "dead", first_id=1)
    add_at_rest(database, "done", first_id=1_000_000)
    assert [job["id"] for job in here.json("list", "--status", "dead")["jobs"]] == [1]
    assert [job["id"] for job in here.json("list")["jobs"]] == [1_000_000, 1]
    answer = here.must("list", "--kind", "ok")
    assert "only jobs with an id above 800000 were looked at" in answer
    assert here.json("list", "--kind", "ok")["looked_at_ids_above"] == 800_000


def test_a_list_shows_what_was_asked_for(here: Here, jobs: Jobs) -> None:
    """The newest first, and no more than asked for."""
    first = jobs.enqueue("a", tenant="x", queue="q")
    second = jobs.enqueue("b", tenant="y")
    third = jobs.enqueue("a", tenant="y")

    def ids(*arguments: str) -> list[int]:
        return [job["id"] for job in here.json("list", *arguments)["jobs"]]

    assert ids() == [third, second, first]
    assert ids("--limit", "1") == [third]
    assert ids("--kind", "a") == [third, first]
    assert ids("--queue", "q") == [first]
    assert ids("--tenant", "y", "--kind", "a", "--status", "queued") == [third]
    assert ids("--status", "running") == []
    assert here.must("list", "--status", "running") == "no jobs\n"


@pytest.mark.parametrize("filters", [{}, {"status": "queued"}, {"kind": "a"}], ids=["all", "by index", "by a filter"])
def test_a_list_goes_on_where_its_last_page_ended(here: Here, jobs: Jobs, filters: dict[str, str]) -> None:
    """Whatever is enqueued meanwhile; the last page names no further one."""
    options = [part for name, value in filters.items() for part in (f"--{name}", value)]
    made = [jobs.enqueue("a") for _ in range(5)]
    first = here.json("list", *options, "--limit", "2")
    assert f"go on with --before {made[3]}\n" in here.must("list", *options, "--limit", "2")
    jobs.enqueue("a")
    seen, before = [job["id"] for job in first["jobs"]], first["next_before"]
    while before is not None:
        page = here.json("list", *options, "--limit", "2", "--before", str(before))
        seen += [job["id"] for job in page["jobs"]]
        before = page["next_before"]
    assert seen == made[::-1]
    assert "--before" not in here.must("list", *options, "--limit", "2", "--before", str(made[2]))


def test_a_list_by_a_filter_goes_on_below_the_ids_it_has_looked_at(here: Here, database: Database) -> None:
    """C102: never over the whole table at once, and yet to its end."""
    add_at_rest(database, "done", first_id=1, queue="rare")
    add_at_rest(database, "done", first_id=500_000)
    pages = []
    before: list[str] = []
    while True:
        page = here.json("list", "--queue", "rare", *before)
        pages.append([job["id"] for job in page["jobs"]])
        if page["next_before"] is None:
            break
        before = ["--before", str(page["next_before"])]
    assert pages == [[], [], [1]]


def test_how_a_job_died_is_seen_without_a_debugger(here: Here, database: Database, jobs: Jobs) -> None:
    """C16: each run with its outcome, error, traceback and stacks."""
    job = jobs.enqueue("die", max_attempts=2)
    for fence, outcome, error in (
        (
            1,
            "failed",
            {"class": "ValueError", "message": "no way", "traceback": "Traceback\n" + "frame\n" * 50 + "the end"},
        ),
        (2, "crashed", {"message": "killed by SIGKILL (signal 9)", "signal": "SIGKILL", "core_dumped": False}),
    ):
        database.execute(
            "update fencepost.jobs set status = 'running', attempts = %s, fence = %s, locked_by = 'w',"
            " locked_until = now(), started_at = now() where id = %s",
            [fence, fence, job],
        )
        finish = """
            select fencepost.finish(
                %s, %s, 'w', %s, error => %s, summary => %s, stack => 'Thread 1', max_rss => 52428800)
        """
        assert database.value(finish, [job, fence, outcome, json.dumps(error), error["message"]])
    assert "killed by SIGKILL (signal 9)" in here.must("list")
    told = here.must("show", str(job))
    for part in (
        "dead",
        "2 of 2",
        "failed",
        "ValueError: no way",
        "the end",
        "32 lines before",
        "crashed",
        "  killed by SIGKILL (signal 9)\n  stacks:",
        "50 MB",
    ):
        assert part in told, told
    assert "core_dumped" not in told
    assert "signal: " not in told, "told twice"
    document = here.json("show", str(job))
    assert [run["outcome"] for run in document["runs"]] == ["failed", "crashed"]
    assert document["runs"][0]["error"]["traceback"].count("frame") == 50
    assert document["last_error"] == "killed by SIGKILL (signal 9)"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-1, "0 ms"),
        (0.0042, "4 ms"),
        (0.1, "0.1 s"),
        (9.94, "9.9 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7200, "2 h"),
        (172800, "2 d"),
    ],
)
def test_a_duration_is_told_as_exactly_as_people_want_it(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_an_unknown_job_is_one_line(here: Here) -> None:
    """C93: exit not 0, says so, no traceback."""
    assert "there is no job 77" in refused(here("show", "77"), 1)
    refused(here("show", "x"), 2)
    refused(here("show", str(2**63)), 2)


def test_what_jobs_say_is_shown_and_never_interpreted(here: Here, database: Database, jobs: Jobs) -> None:
    """A job's text could else move the cursor, forge lines or be taken for markup."""
    evil = "\x1b[2J[bold]x[/bold] [link=http://x]\r\n\u202eab\u009b1m"
    job = jobs.enqueue(evil, {"key": evil, "number": 1}, queue=evil, tenant=evil)
    error = json.dumps({"class": evil, "message": evil, "traceback": f"{evil}\x1b]0;title\x07", "more": [evil]})
    database.execute("update fencepost.jobs set fence = 1, last_error = %s where id = %s", [evil, job])
    database.execute(
        "insert into fencepost.job_runs (job_id, fence, attempt, worker, started_at, outcome, error, stack)"
        " values (%s, 1, 1, %s, now(), 'failed', %s, %s)",
        [job, evil, error, evil],
    )
    database.execute("update fencepost.jobs set payload = jsonb_set(payload, '{number}', %s) where id = %s", ["1" * 5000, job])
    answers = [here.must(*command) for command in (["list"], ["show", str(job)], ["status"])]
    for answer in answers:
        assert "[bold]x[/bold]" in answer
        assert not [one for one in answer if not one.isprintable() and one != "\n"]
    assert len(answers[0].splitlines()) == 2
    for command in (["list"], ["show", str(job)], ["status"]):
        document = here.must(*command, "--json")
        assert document.isascii()
        assert not [one for one in document if not one.isprintable() and one != "\n"]
    assert json.loads(here.must("show", str(job), "--json"), parse_int=str)["payload"] == {
        "key": evil,
        "number": "1" * 5000,
    }


def test_a_pipe_that_is_closed_early_is_no_accident(shell: Shell, database: Database) -> None:
    """`| head` must not end in a traceback."""
    database.execute(
        "insert into fencepost.jobs (kind, payload, tenant_id)"
        " select repeat('k', 200), jsonb_build_object('a', repeat('x', 500)), '1' from generate_series(1, 1000)"
    )
    for options in ([], ["--json"]):
        process = subprocess.Popen(
            [sys.executable, "-m", "fencepost", "list", "--limit", "1000", *options],
            cwd=shell.folder,
            env=shell.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout
        assert process.stderr
        assert process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(10) != 0
        process.stderr.close()


def test_an_answer_that_can_not_be_written_is_not_lost_silently(shell: Shell) -> None:
    """A full disk is said, and the exit code is not 0."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "fencepost", "list"],
            cwd=shell.folder,
            env=shell.environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith(b"fencepost: the answer can't be written")


# ---- cancel and retry


@pytest.fixture
def operator(tmp_path: Path, fresh_database: Database) -> Iterator[Shell]:
    """The command line of a plain role with what the README says that working by hand needs."""
    name = f"operator_{fresh_database.name}"
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    grants = [line for line in readme.splitlines() if line.startswith("grant ") and line.endswith(" to operator;")]
    assert len(grants) == 3
    fresh_database.execute(f"create role {name} login")
    for grant in grants:
        fresh_database.execute(grant.replace(" to operator;", f" to {name};"))
    yield Shell(tmp_path, fresh_database.server.url(fresh_database.name, name))
    fresh_database.execute(f"drop owned by {name}; drop role {name}")


@pytest.fixture
def by_hand(here: Here, database: Database) -> Here:
    """The command line of someone who may cancel and retry, in this process."""
    return here.on(database.url)


def set_running(database: Database, job: int) -> None:
    database.execute(
        "update fencepost.jobs set status = 'running', attempts = 1, max_attempts = 3, fence = fence + 1, locked_by = 'w:1',"
        " started_at = now(), locked_until = now() + interval '1 h' where id = %s",
        [job],
    )


def finish(database: Database, job: int, outcome: str) -> None:
    fence = database.value("select fence from fencepost.jobs where id = %s", [job])
    assert database.value("select fencepost.finish(%s, %s, 'w:1', %s, final => true)", [job, fence, outcome])


def test_an_operator_needs_no_more_than_the_readme_says(operator: Shell, fresh_database: Database) -> None:
    """C117: list, show, cancel, retry and status, as a plain role that can change no row by itself."""
    job = Jobs(fresh_database).enqueue("report")
    assert operator.must("cancel", str(job)) == f"job {job} is cancelled\n"
    assert operator.json("list")["jobs"][0]["status"] == "cancelled"
    assert operator.must("retry", str(job)) == f"job {job} is queued\n"
    assert operator.json("show", str(job))["status"] == "queued"
    assert operator.json("status")["jobs"]["queued"] == 1
    with psycopg.connect(operator.url) as conn, pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute("update fencepost.jobs set status = 'queued'")


def test_a_right_to_cancel_that_is_missing_is_named(here: Here, jobs: Jobs) -> None:
    """C117: a worker's login has none, and the line says where it is written what is needed."""
    for verb in ("cancel", "retry"):
        line = refused(here(verb, str(jobs.enqueue("report"))), 78)
        assert f"function {verb}" in line
        assert "Rights" in line


def test_a_job_that_is_cancelled_is_one_line_and_exit_0(by_hand: Here, jobs: Jobs) -> None:
    """Asked again, it is still cancelled."""
    first, second = jobs.enqueue("report"), jobs.enqueue("report")
    told = f"job {first} is cancelled\njob {second} is cancelled\n"
    for _ in range(2):
        assert by_hand.must("cancel", str(first), str(second), str(first)) == told
    assert by_hand.json("cancel", str(first)) == {"jobs": [{"id": first, "status": "cancelled", "refused": None}]}


def test_a_cancel_waits_for_the_end_of_the_run_and_its_exit_code_agrees(by_hand: Here, jobs: Jobs, database: Database) -> None:
    """C92: 0 if the job is cancelled in the end, 1 if its handler had returned before."""
    for outcome, code in (("failed", 0), ("cancelled", 0), ("done", 1)):
        job = jobs.enqueue("report")
        set_running(database, job)

        def end(job: int = job, outcome: str = outcome) -> None:
            wait_until(lambda: jobs[job].cancel_requested_at, what="the request")
            finish(database, job, outcome)

        with ThreadPoolExecutor(1) as threads:
            ended = threads.submit(end)
            done = by_hand("cancel", str(job))
            ended.result(10)
        assert done.returncode == code, done
        assert jobs[job].status == ("cancelled" if code == 0 else "done")
        if code:
            assert f"job {job} is done" in refused(done, 1)
        else:
            assert done.stdout == f"job {job} is cancelled\n"


def test_a_cancel_without_waiting_says_what_was_asked(by_hand: Here, jobs: Jobs, database: Database) -> None:
    """Exit 0 for what was asked, and no more is claimed."""
    job = jobs.enqueue("report")
    set_running(database, job)
    assert by_hand.must("cancel", "--no-wait", str(job)) == f"job {job} is asked to stop\n"
    assert by_hand.json("cancel", "--no-wait", str(job))["jobs"] == [{"id": job, "status": "running", "refused": None}]
    assert jobs[job].status == "running"


def test_a_cancel_that_has_waited_long_enough_says_so(
    by_hand: Here, jobs: Jobs, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 1, since the job still runs; what was asked for stands."""
    monkeypatch.setattr("fencepost.cli.by_hand.WAIT", 0.2)
    job = jobs.enqueue("report")
    set_running(database, job)
    assert "still runs" in refused(by_hand("cancel", str(job)), 1)
    assert jobs[job].cancel_requested_at is not None


def test_what_could_not_be_cancelled_is_named_on_one_line_and_the_rest_is_cancelled(
    by_hand: Here, jobs: Jobs, database: Database
) -> None:
    """One that is done, dead or not there does not keep the others from it."""
    queued = jobs.enqueue("report")
    add_at_rest(database, "done", first_id=101)
    add_at_rest(database, "dead", first_id=102)
    done = by_hand("cancel", "101", "102", "77", str(queued))
    assert (done.returncode, done.stdout) == (1, f"job {queued} is cancelled\n")
    for part in ("job 101 is done", "job 102 is dead", "there is no job 77"):
        assert part in done.stderr
    assert done.stderr.count("\n") == 1
    asked = by_hand("cancel", "101", "77", "--json")
    assert (asked.returncode, asked.stderr.count("\n")) == (1, 1)
    assert [(one["id"], one["status"]) for one in json.loads(asked.stdout)["jobs"]] == [(101, "done"), (77, None)]
    many = by_hand("cancel", *map(str, range(200, 260)))
    assert "and 50 more" in refused(many, 1)


def test_a_retry_says_what_it_did_and_what_it_refused(by_hand: Here, jobs: Jobs, database: Database) -> None:
    """C93: running, done and unknown are exit 1 and one line; queued is no change and exit 0; dead and cancelled go back."""
    queued, running = jobs.enqueue("report", after=3600), jobs.enqueue("report")
    set_running(database, running)
    add_at_rest(database, "done", first_id=101)
    add_at_rest(database, "dead", first_id=102)
    add_at_rest(database, "cancelled", first_id=103)
    before = jobs[queued]
    assert f"job {running} is running" in refused(by_hand("retry", str(running)), 1)
    assert "job 101 is done" in refused(by_hand("retry", "101"), 1)
    assert "there is no job 77" in refused(by_hand("retry", "77"), 1)
    assert by_hand.must("retry", str(queued)) == f"job {queued} is queued\n"
    assert jobs[queued] == before
    assert jobs[running].status == "running"
    done = by_hand("retry", "102", "101", "103", "--json")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert [(one["id"], one["status"]) for one in json.loads(done.stdout)["jobs"]] == [
        (102, "queued"),
        (101, "done"),
        (103, "queued"),
    ]


def test_a_retry_that_meets_a_duplicate_names_it(by_hand: Here, jobs: Jobs, database: Database) -> None:
    """C90, C93: its id, and the status of the one that stays at rest."""
    add_at_rest(database, "dead", first_id=101, unique_key="k")
    twin = jobs.enqueue("report", unique_key="k")
    done = by_hand("retry", "101", "--json")
    assert done.returncode == 1
    assert f"job 101 has the unique key of job {twin}" in done.stderr
    (told,) = json.loads(done.stdout)["jobs"]
    assert told["status"] == "dead"
    assert told["refused"] in done.stderr


def test_what_is_no_id_is_refused(by_hand: Here) -> None:
    """In one line, before anything is asked of the database."""
    for verb in ("cancel", "retry"):
        for wrong in ([], ["x"], ["0"], [str(2**63)], ["1", "x"]):
            assert "--help`" in refused(by_hand(verb, *wrong), 2)


# ---- status


def test_a_status_shows_who_works_and_what_nobody_serves(shell: Shell, database: Database, jobs: Jobs) -> None:
    """A kind without a handler, an expired lease and a supervisor that is gone are seen in one look."""
    assert "no supervisor lives" in shell.must("status")
    slots = [
        {"slot": 1, "phase": "running", "worker": "w1", "pid": 8, "job": 5, "kind": "report", "attempt": 2},
        {"slot": 2},
    ]
    common = {
        "kinds": ["report"],
        "queues": ["default"],
        "silent_for": "2 s",
        "listening": True,
        "slots": json.dumps(slots),
    }
    database.execute(ADD_SUPERVISOR, {**common, "name": "living"})
    database.execute(ADD_SUPERVISOR, {**common, "name": "gone", "kinds": ["typo"], "silent_for": "60 s"})
    database.execute(ADD_SUPERVISOR, {**common, "name": "new", "kinds": None, "listening": False, "slots": '"scribble"'})
    jobs.enqueue("report")
    jobs.enqueue("report", queue="elsewhere")
    jobs.enqueue("typo", after=-0.0)
    jobs.enqueue("later", after=3600)
    expired = jobs.enqueue("report")
    database.execute(
        "update fencepost.jobs set status = 'running', attempts = 1, max_attempts = 1, fence = 1, locked_by = 'w',"
        " started_at = now(), locked_until = now() - interval '1 s' where id = %s",
        [expired],
    )
    document = shell.json("status")
    assert {one["name"]: one["mode"] for one in document["supervisors"]} == {"living": "listening", "new": "polling"}
    assert document["supervisors"][0]["slots"] == slots
    assert document["jobs"] == {"queued": 4, "running": 1, "dead": 0, "expired": 1, "counted_to": report.COUNT_TO}
    assert {(one["kind"], one["queue"]) for one in document["not_served"]} == {
        ("typo", "default"),
        ("report", "elsewhere"),
    }
    told = shell.must("status")
    for part in ("1 of 2", "w1", "kind typo in queue default", "1 running jobs have an expired lease", "1.2.3"):
        assert part in told, told


def test_a_worker_that_bypasses_row_level_security_shows_in_the_status(fresh_database: Database, tmp_path: Path) -> None:
    """C66: an override is no reason to be silent."""
    fresh_database.execute("create table public.invoices (id int)")
    fresh_database.execute("alter table public.invoices enable row level security")
    shell = Shell(tmp_path, fresh_database.worker_url)
    assert shell.json("status")["warnings"] == []
    with psycopg.connect(fresh_database.url, application_name="fencepost w1"):
        (warning,) = shell.json("status")["warnings"]
    assert "superuser" in warning


def test_two_hundred_thousand_finished_jobs_do_not_slow_down_status_and_list(fresh_database: Database) -> None:
    """C102: no cost grows with what is at rest."""
    add_at_rest(fresh_database, "done", 200_000)
    fresh_database.execute("analyze fencepost.jobs")
    with fresh_database.worker_conn() as conn:
        for read in (
            lambda: report.living(conn, "fencepost"),
            lambda: report.counts(conn, "fencepost"),
            lambda: report.due_kinds(conn, "fencepost"),
            lambda: report.bypassing_workers(conn, "fencepost"),
            lambda: report.page(conn, "fencepost", report.Filters(status="dead"), 50),
            lambda: report.page(conn, "fencepost", report.Filters(status="running", kind="ok"), 50),
            lambda: report.page(conn, "fencepost", report.Filters(), 50),
        ):
            assert quickest(read) < 0.05


# ---- check, and the start of run


def test_a_check_says_what_is_fine_and_what_a_container_needs(shell: Shell, handlers: str) -> None:
    """Sessions, grace and misspelt variables are told; what handlers print is not part of the answer."""
    done = shell("check", "--json", handlers=handlers, concurrency="4", drain_timeout="10s", concurency="5")
    assert done.returncode == 0, done
    document = json.loads(done.stdout)
    assert document["ok"]
    assert (document["sessions_at_most"], document["grace_period_above"]) == (12, 13)
    assert document["unknown_variables"] == ["FENCEPOST_CONCURENCY"]
    told = shell("check", handlers=handlers, concurrency="1000").stdout
    for part in ("nothing refuses a start", "at most 2004", "raise max_connections", "more than 28 s", "are kept for 7 d"):
        assert part in told, told
    assert document["retention"] == 7 * 86_400
    assert "are kept for ever" in shell("check", handlers=handlers, retention="0").stdout


def test_a_check_names_every_refusal_with_its_cure(fresh_database: Database, tmp_path: Path, handlers: str) -> None:
    """C117, C120: all at once, exit code 78."""
    shell = Shell(tmp_path, fresh_database.worker_url)
    fresh_database.execute("update fencepost.schema_version set version = 0")
    fresh_database.execute(f"revoke update on fencepost.jobs from {fresh_database.worker}")
    done = shell("check", "--json", handlers=handlers)
    assert done.returncode == 78
    cures = [refusal["cure"] for refusal in json.loads(done.stdout)["refusals"]]
    assert cures == [f"grant update on table fencepost.jobs to {fresh_database.worker}", "run `fencepost migrate`"]
    told = shell("check", handlers=handlers)
    assert told.returncode == 78
    assert all(cure in told.stdout for cure in cures)


def test_a_check_says_that_the_database_or_the_schema_is_not_there(
    empty_database: Database, tmp_path: Path, handlers: str
) -> None:
    """C52: what run waits for, check refuses."""
    missing = Shell(tmp_path, empty_database.url)("check", handlers=handlers)
    assert missing.returncode == 78
    assert "run `fencepost migrate`" in missing.stdout
    away = Shell(tmp_path, AWAY)("check", handlers=handlers)
    assert away.returncode == 78
    assert "can't reach the database" in away.stdout


def test_a_check_tells_what_the_container_allows_and_documents_each_key(
    here: Here, monkeypatch: pytest.MonkeyPatch, handlers: str
) -> None:
    """D6, G1: limits, and what they mean for these settings; --help has all keys of the document."""
    limits = cgroup.Limits(memory=100 * 1024 * 1024, cpus=1.5, tasks=8, killed_together=True)
    monkeypatch.setattr(container, "look", lambda: container.Container(limits, 105, "sh"))
    monkeypatch.setattr(trial, "try_import", lambda settings: None)
    told = here("check", handlers=handlers, concurrency="20")
    assert told.returncode == 0, told
    assert "container 100 MiB of memory, 1.5 CPUs, 8 processes and threads" in told.stdout.splitlines()
    warned = [line.removeprefix("warning   ") for line in told.stdout.splitlines() if line.startswith("warning ")]
    for part in ("before any job runs", "memory.oom.group", "share 1.5 CPU", "pids.max", "ulimit -Hn", "PID 1 is sh"):
        assert any(part in line for line in warned), warned
    document = here.json("check", handlers=handlers, concurrency="20")
    assert (document["memory_limit"], document["cpu_limit"], document["task_limit"]) == (100 * 1024 * 1024, 1.5, 8)
    assert document["warnings"] == warned
    documented = here.must("check", "--help").split("has these keys")[1]
    assert [key for key in document if not re.search(rf"\b{key}\b", documented)] == []
    assert list(document) == list(json.loads(here("check", "--json", handlers="").stdout))


BY_TENANT = "tenant = nullif(current_setting('app.tenant', true), '')::int"
TABLES = """
    create schema shop;
    grant usage on schema shop to public;
    create function shop.tenant() returns int language sql stable
        as $$ select nullif(current_setting('app.tenant', true), '')::int $$;
    create table shop."Good" (tenant int);
    create table shop.good_by_function (tenant int);
    create table shop.good_reads (tenant int);
    create table shop.good_restricted (tenant int);
    create table shop.bare (tenant int);
    create table shop.no_policy (tenant int);
    create table shop.unread (tenant int);
    create table shop.wide (tenant int);
    create table shop.wide_for_writers (tenant int);
    create table shop.wide_for_new_rows (tenant int);
    create table shop.truncated (tenant int);
    create table shop.owned (tenant int);
    create table shop.parts (tenant int) partition by list (tenant);
    create table shop.part_1 partition of shop.parts for values in (1);
    create table shop.part_2 partition of shop.parts for values in (2);
    create foreign data wrapper nothing;
    create server nowhere foreign data wrapper nothing;
    create foreign table shop.far (tenant int) server nowhere;
    create view shop.v_good as select * from shop."Good" where exists (select from pg_class);
    create view shop.v_both as select tenant from shop.v_good union all select tenant from shop.bare;
    create view shop.v_all as select * from shop."Good";
    create view shop.v_none as select 1 as one;
    create materialized view shop.m as select * from shop."Good";
    create table shop.none_of_ours (tenant int);
    create table shop.columns (tenant int, secret text);
"""
PROTECTED = (
    '"Good"',
    "good_by_function",
    "good_reads",
    "good_restricted",
    "no_policy",
    "unread",
    "wide",
    "wide_for_writers",
    "wide_for_new_rows",
    "truncated",
    "owned",
    "parts",
    "part_2",
    "columns",
)
POLICIES = f"""
    create policy tenants on shop."Good" using ({BY_TENANT});
    create policy tenants on shop.good_by_function using (tenant = shop.tenant());
    create policy reads on shop.good_reads for select using ({BY_TENANT});
    create policy maintenance on shop.good_reads for delete using (true);
    create policy anyone on shop.good_restricted using (true);
    create policy tenants on shop.good_restricted as restrictive using ({BY_TENANT});
    create policy "no one's" on shop.no_policy to pg_monitor using ({BY_TENANT});
    create policy narrows on shop.no_policy as restrictive using ({BY_TENANT});
    create policy positive on shop.unread using (tenant > 0);
    create policy tenants on shop.wide using ({BY_TENANT});
    create policy everyone on shop.wide for select using (true);
    create policy tenants on shop.wide_for_writers for update using ({BY_TENANT}) with check (tenant > 0);
    create policy tenants on shop.wide_for_new_rows using ({BY_TENANT});
    create policy adds on shop.wide_for_new_rows for insert with check (tenant > 0);
    create policy tenants on shop.truncated using ({BY_TENANT});
    create policy tenants on shop.owned using ({BY_TENANT});
    create policy tenants on shop.parts using ({BY_TENANT});
    create policy tenants on shop.part_2 using ({BY_TENANT});
    create policy tenants on shop.columns using ({BY_TENANT});
"""


def test_a_list_tells_of_each_table_whether_a_job_is_kept_from_other_tenants(fresh_database: Database, here: Here) -> None:
    """C66: and why not, as whoever reads it in the end."""
    worker, owner = fresh_database.worker, f"owner_{fresh_database.name}"
    fresh_database.execute(TABLES)
    for name in PROTECTED:
        fresh_database.execute(f"alter table shop.{name} enable row level security")
    fresh_database.execute(POLICIES)
    fresh_database.execute(
        f"""
        create role {owner};
        grant usage on schema shop to {owner};
        grant select on all tables in schema shop to {worker};
        revoke all on shop.none_of_ours, shop.columns from {worker};
        grant insert (tenant) on shop.columns to {worker};
        grant update on shop.wide_for_writers to {worker};
        grant insert on shop.wide_for_new_rows to {worker};
        grant truncate on shop.truncated to {worker};
        alter table shop.owned owner to {worker};
        alter view shop.v_good owner to {owner};
        grant select on shop."Good" to {owner};
        """
    )
    why_not = {
        '"Good"': ("table", None),
        "good_by_function": ("table", None),
        "good_reads": ("table", None),
        "good_restricted": ("table", None),
        "columns": ("table", None),
        "v_good": ("view", None),
        "parts": ("partitioned table", None),
        "part_2": ("partition", None),
        "part_1": ("partition", "that of shop.parts does not apply"),
        "bare": ("table", "no row-level security"),
        "no_policy": ("table", f"no policy permits {worker} anything: it shows nothing"),
        "unread": ("table", "policy positive lets rows through without reading app.tenant"),
        "wide": ("table", "policy everyone lets rows through beside the tenant's, using (true)"),
        "wide_for_writers": ("table", "policy tenants lets rows through without reading app.tenant"),
        "wide_for_new_rows": ("table", "policy adds lets rows through beside the tenant's"),
        "truncated": ("table", f"{worker} may truncate it"),
        "owned": ("table", f"{worker} is its owner, and row-level security is not forced"),
        "far": ("foreign table", "a foreign table has no row-level security"),
        "v_both": ("view", f"reads shop.bare as {SUPERUSER}: no row-level security"),
        "v_all": ("view", f'reads shop."Good" as {SUPERUSER}: {SUPERUSER} is a superuser'),
        "v_none": ("view", "reads no table"),
        "m": ("materialized view", "a materialized view has no row-level security"),
    }
    on = here.on(fresh_database.worker_url)
    document = on.json("check", "--tables")
    assert (document["acting_as"], document["tenant_setting"]) == (worker, "app.tenant")
    found = {one["name"].removeprefix("shop."): one for one in document["tables"] if one["name"].startswith("shop.")}
    assert sorted(found) == sorted(why_not)
    for name, (kind, why) in why_not.items():
        one = found[name]
        assert (one["kind"], one["protected"]) == (kind, why is None), one
        assert why is None or why in one["why"], one
    assert "using" not in found["wide_for_new_rows"]["why"]
    assert {one["name"] for one in document["tables"]} & {"fencepost.jobs", "pg_catalog.pg_class"} == set()
    fresh_database.execute(f"drop owned by {owner} cascade; drop role {owner}")


def test_a_list_of_tables_goes_by_who_works_on_them(fresh_database: Database, here: Here) -> None:
    """C66: the role of jobs if there is one; and a view may ask as who asks."""
    worker, other = fresh_database.worker, f"jobs_{fresh_database.name}"
    on = here.on(fresh_database.worker_url)
    table = """
        create table public.orders as select 1 as tenant;
        alter table public.orders enable row level security;
        create policy tenants on public.orders using ({0});
        create role {1};
        grant select on public.orders to {1}, {2};
    """
    fresh_database.execute(table.format(BY_TENANT, other, worker))
    if fresh_database.owner.info.server_version >= 150000:
        fresh_database.execute("create view public.asked with (security_invoker) as select * from public.orders")
        fresh_database.execute("create view public.through as select * from public.asked; grant select on through to public")
        with fresh_database.worker_conn() as conn:
            assert conn.execute("select from public.through").fetchall() == [], "the server does as the list says"
    told = on.must("check", "--tables", job_role=other).splitlines()
    assert told[0] == f"jobs work as {other}, FENCEPOST_JOB_ROLE; policies read the tenant from app.tenant"
    assert [line.split() for line in told if "public.orders" in line] == [["public.orders", "table", "yes"]]
    if fresh_database.owner.info.server_version >= 150000:
        assert [line.split() for line in told if "public.through" in line] == [["public.through", "view", "yes"]]
    fresh_database.execute(f"alter role {other} bypassrls")
    told = on.must("check", "--tables", job_role=other).splitlines()
    (line,) = [line for line in told if line.startswith("public.orders")]
    assert line.split(maxsplit=3) == ["public.orders", "table", "no", f"{other} has BYPASSRLS"]
    assert re.fullmatch(r"0 of \d+ are protected", told[-1])
    assert "policies read the tenant from my.tenant" in on.must("check", "--tables", tenant_setting="my.tenant")
    (one,) = [one for one in on.json("check", "--tables", tenant_setting="my.tenant")["tables"] if "orders" in one["name"]]
    assert one["why"] == "policy tenants lets rows through without reading my.tenant"
    assert "is a superuser" in here.on(fresh_database.url).must("check", "--tables")
    fresh_database.execute(f"drop owned by {other} cascade; drop role {other}")


def test_a_list_of_tables_can_be_empty_or_refused(fresh_database: Database, here: Here) -> None:
    """It leaves with 0 if it could look, with one line on stderr if it could not; --help has the keys of its document."""
    on = here.on(fresh_database.worker_url)
    fresh_database.execute(f"revoke all on all tables in schema test from {fresh_database.worker}")
    assert on.json("check", "--tables")["tables"] == []
    told = on.must("check", "--tables")
    assert told == f"jobs work as {fresh_database.worker}, the login, which has no right on any table outside the queue\n"
    assert "no such role" in refused(on("check", "--tables", job_role="nobody_knows"), 78)
    assert "FENCEPOST_TENANT_SETTING is empty" in refused(on("check", "--tables", tenant_setting=""), 78)
    assert "can't reach the database" in refused(here.on(AWAY)("check", "--tables"), 1)
    documented = on.must("check", "--help").split("then has these keys")[1]
    fresh_database.execute("create table public.one (); grant select on public.one to public")
    document = on.json("check", "--tables")
    for key in (*document, *document["tables"][0]):
        assert re.search(rf"\b{key}\b", documented), key


@contextmanager
def silent_after(server: Server, last: bytes) -> Iterator[int]:
    """Open a port that leads to the server, until the client has sent `last`: from then on nothing comes back."""

    def relay() -> None:
        client, _ = listener.accept()
        with client, socket.create_connection(("127.0.0.1", server.port)) as behind:
            while True:
                for one in select.select([client, behind], [], [])[0]:
                    data = one.recv(65536)
                    if one is client and last in data:
                        while client.recv(65536):
                            pass
                    if one is client and (last in data or not data):
                        return
                    (behind if one is client else client).sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=relay)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)


def test_a_check_of_a_database_that_does_not_answer_ends_with_one_line(
    here: Here, server: Server, fresh_database: Database, monkeypatch: pytest.MonkeyPatch, handlers: str
) -> None:
    """Never let in, held up by a lock, or frozen after it was let in: within the limits, and said."""
    monkeypatch.setattr(trial, "try_import", lambda settings: None)
    monkeypatch.setattr(check_module, "ANSWER_LIMIT", 0.5)
    monkeypatch.setattr(check_module, "LOCK_LIMIT", "200")
    url = fresh_database.worker_url

    def refusal(url: str) -> str:
        began = time.monotonic()
        told = here.on(url)("check", handlers=handlers)
        assert time.monotonic() - began < 4
        assert (told.returncode, told.stderr) == (78, "")
        (line,) = [line for line in told.stdout.splitlines() if line.startswith("refused ")]
        assert "  run     waits for it" in told.stdout.splitlines()
        return line

    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
        assert "timeout" in refusal(f"{url.replace(str(server.port), str(port))}?connect_timeout=2")
    with fresh_database.conn(autocommit=False) as other:
        other.execute("lock table fencepost.schema_version")
        assert "did not answer in time" in refusal(url)
    with silent_after(server, b"pg_namespace") as port:
        assert "can't reach the database" in refusal(url.replace(str(server.port), str(port)))


def test_handlers_that_do_not_import_are_found_out_before_a_start(shell: Shell) -> None:
    """Tried in a process of their own, so that one that leaves does not take the check with it."""
    (shell.folder / "broken.py").write_text("import no_such_module", encoding="utf-8")
    (shell.folder / "leaves.py").write_text("import os; os._exit(0)", encoding="utf-8")
    done = shell("check", handlers="broken")
    assert done.returncode == 70, done
    assert "No module named 'no_such_module'" in done.stdout
    assert shell("check", handlers="leaves").returncode == 70


def test_wrong_settings_are_all_named_at_once(shell: Shell) -> None:
    """A supervisor without handlers could only idle."""
    for command in ("run", "check"):
        done = shell(command)
        assert (done.returncode, done.stdout) == (78, "")
        assert "FENCEPOST_HANDLERS" in done.stderr
    done = shell("run", concurrency="0", lease="abc")
    assert (done.returncode, done.stdout) == (78, "")
    assert "FENCEPOST_CONCURRENCY=0" in done.stderr
    assert "FENCEPOST_LEASE=abc" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("attribute", ["superuser", "bypassrls"])
def test_a_supervisor_that_would_bypass_row_level_security_leaves_at_once(
    fresh_database: Database, tmp_path: Path, handlers: str, attribute: str
) -> None:
    """C66: with 78, naming the attribute."""
    fresh_database.execute("create table public.invoices (id int)")
    fresh_database.execute("alter table public.invoices enable row level security")
    fresh_database.execute(f"alter role {fresh_database.worker} {attribute}")
    done = Shell(tmp_path, fresh_database.worker_url)("run", handlers=handlers)
    assert done.returncode == 78, done
    assert attribute in done.stderr.lower()
    assert "FENCEPOST_ALLOW_BYPASSRLS" in done.stderr


# ---- what holds for all


def test_a_password_is_never_shown(shell: Shell, here: Here, handlers: str) -> None:
    """C132: neither as it is nor as it is written in the address, with the server away or the address wrong."""
    secrets = ("p@s s/%:#?", "p%40s%20s%2F%25%3A%23%3F", "s%20s", "s s/")
    for url in (
        f"postgresql://me:{secrets[1]}@127.0.0.1:1/nothing",
        f"postgresql://me:{secrets[1]}@no-such-host.invalid/nothing",
        f"postgresql://me:{secrets[1]}@127.0.0.1:x/nothing",
        f"host=127.0.0.1 port=1 password='{secrets[0]}'",
    ):
        away = here.on(url)
        told = [away("list"), away("migrate"), Shell(shell.folder, url)("check", handlers=handlers)]
        for done in told:
            assert done.returncode != 0
            assert not [secret for secret in secrets if secret in done.stdout + done.stderr], done


@pytest.mark.parametrize("loaded", ["click.core", "psycopg", "fencepost.settings", "fencepost.cli.output"])
def test_ctrl_c_while_modules_are_imported_is_no_traceback(shell: Shell, loaded: str) -> None:
    """The first half second of every command: exit 130, and nothing is said."""
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "fencepost", "list"],
        cwd=shell.folder,
        env=shell.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr
    said = []
    for line in process.stderr:
        said.append(line)
        if line.rpartition("|")[2].strip() == loaded:
            process.send_signal(signal.SIGINT)
            break
    rest = process.communicate(timeout=10)
    assert process.returncode == 130, rest
    # The shell's prompt begins a line of its own: that much is said.
    assert [line for line in (*said, *rest[1].splitlines()) if line.strip() and not line.startswith("import time:")] == []
    assert rest[0] == ""


def test_ctrl_c_in_code_that_is_made_at_import_is_told_by_the_same_code(shell: Shell) -> None:
    """Exit 130: Python itself kills the process by the signal at its end, if it came as a dataclass was made, say."""
    (shell.folder / "interrupted.py").write_text("exec('import signal; signal.raise_signal(signal.SIGINT)')", encoding="utf-8")
    command = [sys.executable, "-m", "fencepost", "enqueue", "report"]
    environment = shell.environment(handlers="interrupted")
    told = subprocess.run(command, cwd=shell.folder, env=environment, capture_output=True, timeout=30, check=False)
    assert (told.returncode, told.stdout, told.stderr.strip()) == (130, b"", b"")


def test_ctrl_c_while_a_cancel_waits_is_no_traceback(shell: Shell, jobs: Jobs, database: Database) -> None:
    """Exit 130; what was asked for stands."""
    job = jobs.enqueue("report")
    set_running(database, job)
    process = subprocess.Popen(
        [sys.executable, "-m", "fencepost", "cancel", str(job)],
        cwd=shell.folder,
        env=Shell(shell.folder, database.url).environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_until(lambda: jobs[job].cancel_requested_at, what="the request")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out, err.strip()) == (130, b"", b"")
    assert jobs[job].status == "running"


def test_an_argument_that_is_no_text_is_one_line(shell: Shell) -> None:
    """A terminal in another encoding, or a paste that went wrong."""
    odd = b"caf\xe9"
    for command in ([b"list", b"--kind", odd], [b"enqueue", odd, b"--tenant", b"1"], [b"enqueue", b"k", b"--tenant", odd]):
        done = subprocess.run(
            [sys.executable, "-m", "fencepost", *command],
            cwd=shell.folder,
            env=shell.environment(PYTHONUTF8="1"),
            capture_output=True,
            check=False,
        )
        assert done.returncode in (1, 2), done
        assert done.stderr.startswith(b"fencepost: "), done
        assert done.stderr.count(b"\n") == 1


def test_an_answer_survives_a_terminal_that_can_not_write_it(shell: Shell, jobs: Jobs) -> None:
    """What the encoding has no letter for is written as an escape."""
    job = jobs.enqueue("caf\u00e9 \U0001f600", tenant="\u00e9")
    for settings in ({"PYTHONIOENCODING": "ascii"}, {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}):
        for command in (["list"], ["show", str(job)]):
            assert "caf\\xe9 \\U0001f600" in shell.must(*command, **settings)


def test_a_mistyped_command_is_one_line_that_says_where_to_look(here: Here) -> None:
    """No usage text to scroll past."""
    for command in (["lst"], ["list", "--status", "odd"], ["enqueue"], ["list", "--limit", "0"], ["show"]):
        assert "--help`" in refused(here(*command), 2)
    assert here().returncode == 2
    assert here.must("--version").startswith("fencepost ")
    assert all(f"{code} " in here.must("--help") for code in (0, 75, 70, 78))


def test_a_line_is_not_cut_where_it_is_not_a_terminal(here: Here, database: Database) -> None:
    """Eighty columns would be a guess."""
    add_at_rest(database, "dead", last_error="why " * 25 + "END", queue="q" * 100)
    answer = here.must("list", COLUMNS="20")
    assert "why END" in answer
    assert "\x1b" not in answer
    assert len(answer.splitlines()) == 2
