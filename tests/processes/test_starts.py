"""What stops a start: `fencepost run` and `fencepost check` say the very same, and what they print as a cure cures it.

A case is a state that the owner brings about with SQL, what is said of it, and settings; its cure is what was printed,
carried out.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from fencepost.cli import main
from fencepost.jobs import migrate
from fencepost.supervisor import container, trial
from support import nursery
from support.databases import Database
from support.jobs import Jobs
from support.processes import Supervisor
from support.servers import SUPERUSER, Server
from support.waiting import wait_until

Start = Callable[..., Supervisor]

HANDLERS = "handlers_for_tests"
PASSWORD = "p@s s/%25:#?"
ENCODED = "p%40s%20s%2F%2525%3A%23%3F"

TENANTS_TABLE = """
    create table public.invoices (tenant text);
    alter table public.invoices enable row level security, force row level security;
"""
HIDE_JOBS = "alter table fencepost.jobs enable row level security, force row level security;"
TENANTS_POLICY = "create policy tenants on fencepost.jobs using (tenant_id = current_setting('app.tenant', true));"

OF_A_NEWER_CODE = """
from fencepost.jobs import migrate

known = migrate._files
migrate._files = lambda: {**known(), max(known()) + 1: "create table fencepost.added_later ()"}
"""
"""Makes the code of every process that finds it newer by one migration."""


@dataclass(frozen=True)
class Case:
    """A state: what brings it about, what is said of it, and how it is started into."""

    state: str
    says: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    superuser: bool = False
    newer_code: bool = False


def cases(known: Mapping[str, Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", known.values(), ids=known)


RIGHTS = (
    Case("revoke usage on schema fencepost from {worker}", ("usage on schema fencepost",)),
    Case("revoke update on fencepost.jobs from {worker}", ("update on table fencepost.jobs",)),
    Case(
        "revoke update on fencepost.jobs from {worker}; grant update (status, attempts) on fencepost.jobs to {worker}",
        ("update on table fencepost.jobs",),
    ),
    Case("revoke execute on function fencepost.finish from {worker}", ("execute on function fencepost.finish",)),
)

REFUSED = {
    "several things at once": Case(
        f"drop owned by {{worker}}; {HIDE_JOBS}",
        ("usage on schema", "select, update on table fencepost.jobs", "function fencepost.hold", "hides jobs from {worker}"),
    ),
    "the schema is older": Case("", ("has version 1, and this code needs version 2",), newer_code=True),
    "there is no role for jobs": Case(
        "",
        (
            "FENCEPOST_JOB_ROLE={role}: there is no such role",
            "may not take on the role {role}",
            "{role} needs usage on schema",
            "{role} needs execute on function",
        ),
        settings={"job_role": "{role}"},
    ),
    "a superuser before policies": Case(TENANTS_TABLE, ("is a superuser", "public.invoices"), superuser=True),
    "a login with bypassrls": Case(f"{TENANTS_TABLE} alter role {{worker}} bypassrls", ("has BYPASSRLS", "public.invoices")),
    "an owner not bound, and then by a policy that casts": Case(
        f"""
        {TENANTS_TABLE} alter table public.invoices no force row level security, owner to {{worker}};
        create policy tenants on public.invoices using (tenant::int = current_setting('app.tenant', true)::int);
        """,
        ("{worker} owns public.invoices, and its row-level security is not forced", "casts app.tenant to integer"),
    ),
    "jobs are hidden by a tenant's policy": Case(
        f"{HIDE_JOBS} {TENANTS_POLICY}", ("row-level security on fencepost.jobs hides jobs from {worker}",)
    ),
}

AWAITED = {
    "the database is not there": Case("alter database {database} rename to {database}_away", ("does not exist",)),
    "the role is not there": Case("alter role {worker} rename to {worker}_away", ("does not exist",)),
    "the role may not connect": Case("revoke connect on database {database} from public", ("permission denied",)),
    "the role has no session left": Case("alter role {worker} connection limit 0", ("too many connections",)),
    "the server only reads": Case("alter database {database} set default_transaction_read_only = on", ("read-only",)),
}
CURES = {
    "rename": "alter {0} {1}_away rename to {1}",
    "revoke": "grant connect on database {database} to public",
    "connection": "alter {0} {1} connection limit -1",
    "set": "alter {0} {1} reset all",
}

OLDER_SUPERVISOR = """
    insert into fencepost.supervisors (name, host, pid, version, queues, lease, heartbeat, listening, state, seen_at)
    values ('other', 'there', 1, '0.0.1', '{{default}}', '6 s', '1.5 s', true, 'running', now() + interval '1 min');
"""
PLAIN = Case("", ())

WARNED = Case(
    f"""
    update fencepost.schema_version set version = version + 1;
    create table public.own (tenant text);
    alter table public.own enable row level security, owner to {{worker}};
    {OLDER_SUPERVISOR}
    alter role {{worker}} connection limit 5;
    alter database {{database}} connection limit 4
    """,
    (
        "install the newer Fencepost",
        "{worker} owns public.own",
        "1 supervisor runs Fencepost 0.0.1",
        "may need 6 sessions, and role {worker} allows 5",
        "may need 6 sessions, and database {database} allows 4",
    ),
    settings={"allow_bypassrls": "yes"},
)


class Place:
    """A database, the names in it, and the starts on it."""

    def __init__(
        self, database: Database, role: str, start: Start, folder: Path, here: Callable[..., tuple[int, str, str]]
    ) -> None:
        self.database = database
        self._here = here
        self.names = {"worker": database.worker, "database": database.name, "role": role}
        self._start = start
        self._folder = folder

    def text(self, text: str) -> str:
        """Return a case's text with the names of this place."""
        return text.format(**self.names)

    def bring_about(self, state: str, *, outside: bool = False) -> None:
        """Execute a case's SQL as a superuser; `outside` of the database it may be renamed too."""
        self.database.close()
        where = self.database.server.url() if outside else self.database.url
        with psycopg.connect(where, autocommit=True) as conn:
            conn.execute(self.text(state))

    def start(self, case: Case, *, superuser: bool | None = None, **settings: str) -> Supervisor:
        """Start `fencepost run`, its password in the address although nobody asks for it."""
        url = self.database.url if (case.superuser if superuser is None else superuser) else self.database.worker_url
        given = {"handlers": HANDLERS, "concurrency": "1", **{name: self.text(one) for name, one in case.settings.items()}}
        if case.newer_code:
            path = self._folder / "newer"
            path.mkdir(exist_ok=True)
            (path / "sitecustomize.py").write_text(OF_A_NEWER_CODE, encoding="utf-8")
            here = str(Path(__file__).parents[1] / "support")
            given["environment"] = {"PYTHONPATH": os.pathsep.join([str(path), here])}
        return self._start(url.replace("@127", f":{ENCODED}@127"), **{**given, **settings})

    def check(self, supervisor: Supervisor) -> dict[str, Any]:
        """Return what `fencepost check --json` answers where `supervisor` is started, asked in this process: it is quicker."""
        return answer(*self._here(supervisor, "check", "--json"))

    def carry_out(self, cure: str, supervisor: Supervisor) -> dict[str, Any]:
        """Do what a cure says, word for word, and return what it has changed of how to start."""
        if cure.startswith("run `"):
            _, command, _ = cure.split("`")
            owners = {"DATABASE_URL": self.database.url}
            assert fencepost(supervisor, *shlex.split(command)[1:], **owners).returncode == 0
            return {}
        if setting := re.fullmatch(r"log in as a plain role, or set FENCEPOST_(\w+)=(\w+) .*", cure):
            is_superuser = supervisor.environment["DATABASE_URL"].startswith(f"postgresql://{SUPERUSER}:")
            return {"superuser": False} if is_superuser else {setting[1].lower(): setting[2]}
        self.database.execute(cure.removeprefix("correct FENCEPOST_JOB_ROLE, or "))
        return {}


def fencepost(supervisor: Supervisor, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command where and as a supervisor is started."""
    return nursery.run(arguments, supervisor.folder, {**supervisor.environment, **environment})


def check(supervisor: Supervisor) -> dict[str, Any]:
    """Return what `fencepost check --json` answers where a supervisor is started, as a process."""
    done = fencepost(supervisor, "check", "--json")
    return answer(done.returncode, done.stdout, done.stderr)


def answer(code: int, stdout: str, stderr: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(stdout)
    assert stderr == ""
    assert code == (78 if document["refusals"] else 70 if document["handlers_error"] else 0)
    assert document["ok"] == (code == 0)
    assert secrets_in(stdout) == []
    return document


def said(supervisor: Supervisor) -> list[str]:
    """Return the lines that a supervisor leaves with: those that are no log lines."""
    return [line.removeprefix("fencepost: ") for line in supervisor.lines() if not line.startswith("{")]


def secrets_in(text: str) -> list[str]:
    return [one for one in (PASSWORD, ENCODED, "s%20s", "s s/") if one in text]


def comes_up(supervisor: Supervisor) -> bool:
    """Wait until a supervisor has a worker that is ready, or has left. Return whether it is up."""

    def known() -> bool:
        return not supervisor.is_alive() or any(line["event"] == "a worker is ready" for line in supervisor.logs())

    wait_until(known, what="a start or a refusal")
    assert secrets_in(supervisor.tail(1000)) == []
    return supervisor.is_alive()


@pytest.fixture
def role(server: Server) -> Iterator[str]:
    """The name of a role that is not there yet, and is gone after the database. Named first by tests."""
    name = f"jobs_{os.getpid()}_{os.urandom(4).hex()}"
    yield name
    with psycopg.connect(server.url(), autocommit=True) as conn:
        conn.execute(sql.SQL("drop role if exists {}").format(sql.Identifier(name)))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command in this process as a supervisor is started, handlers aside; return its exit code, stdout and stderr."""

    def run(supervisor: Supervisor, *arguments: str) -> tuple[int, str, str]:
        with monkeypatch.context() as patch:
            for name, value in supervisor.environment.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["fencepost", *arguments])
            patch.setattr(trial, "try_import", lambda settings: None)
            capfd.readouterr()
            with pytest.raises(SystemExit) as left:
                main()
        told = capfd.readouterr()
        return int(left.value.code or 0), told.out, told.err

    return run


@pytest.fixture
def place_on(
    role: str, start_supervisor: Start, tmp_path: Path, here: Callable[..., tuple[int, str, str]]
) -> Callable[[Database], Place]:
    """Make a place of a database."""
    return lambda database: Place(database, role, start_supervisor, tmp_path, here)


@pytest.fixture
def place(role: str, database: Database, place_on: Callable[[Database], Place]) -> Place:
    """A migrated database with the documented rights, to be spoilt."""
    return place_on(database)


# ---- refused


def refusals_of(document: dict[str, Any], supervisor: Supervisor) -> list[dict[str, Any]]:
    """Return why a supervisor has left, said by itself and by the document of `fencepost check` in the same words."""
    assert supervisor.wait(5) == 78
    refusals: list[dict[str, Any]] = document["refusals"]
    assert said(supervisor) == [f"{one['what']}: {one['cure']}" for one in refusals]
    assert not any(one["run_waits"] for one in refusals)
    assert len(supervisor.lines()) == len(refusals) + 2, "the first and the last line of the log, and nothing else"
    return refusals


def test_each_right_that_is_missing_refuses_a_start_until_the_printed_grant_is_given(place: Place) -> None:
    """C117: schema, table, columns, function: each singly, so the one before was cured."""
    for case in RIGHTS:
        place.bring_about(case.state)
        supervisor = place.start(case)
        (refusal,) = refusals_of(place.check(supervisor), supervisor)
        assert case.says[0] in refusal["what"]
        place.database.execute(refusal["cure"])
    assert comes_up(place.start(RIGHTS[0]))


@cases(REFUSED)
def test_a_refused_start_says_what_check_says_and_starts_once_the_cures_are_carried_out(place: Place, case: Case) -> None:
    """C63, C66, C68, C117, C120: 78 within 5 s, a line for each refusal, all at once."""
    place.bring_about(case.state)
    changed: dict[str, Any] = {}
    told: list[str] = []
    supervisor = place.start(case)
    for _ in range(2):  # a role can't be looked at before it is there, nor a policy be judged before it binds
        document = check(supervisor) if case.newer_code else place.check(supervisor)
        for refusal in refusals_of(document, supervisor):
            told.append(refusal["what"])
            changed |= place.carry_out(refusal["cure"], supervisor)
        supervisor = place.start(case, **changed)
        if comes_up(supervisor):
            break
    assert supervisor.is_alive()
    for part in case.says:
        assert any(place.text(part) in what for what in told), told
    if "allow_bypassrls" in changed:
        supervisor.wait_for_log("so no row-level security applies to it")


def test_a_check_for_people_says_the_same_in_lines(place: Place) -> None:
    """Refusals of the database and of the handlers, both with what is wrong; nothing keeps one from being told."""
    case = REFUSED["several things at once"]
    place.bring_about(case.state)
    supervisor = place.start(case, handlers="no_such_module")
    told = fencepost(supervisor, "check")
    document = check(supervisor)
    assert told.returncode == supervisor.wait(5) == 78
    assert told.stderr == ""
    lines = told.stdout.splitlines()
    for refusal in document["refusals"]:
        at = lines.index(f"refused   {refusal['what']}")
        assert lines[at + 1] == f"  cure    {refusal['cure']}"
    assert "refused   the handlers don't import" in lines
    assert f"          {document['handlers_error'].splitlines()[-1]}" in lines
    assert lines[-1] == f"{len(document['refusals']) + 1} to cure before a start"
    assert secrets_in(told.stdout) == []


# ---- awaited


@cases(AWAITED)
def test_a_start_waits_for_what_check_refuses_and_goes_on_by_itself(place: Place, case: Case) -> None:
    """C40, C45, C47: what may come right while it waits is said once, and needs no new start."""
    place.bring_about(case.state, outside=True)
    supervisor = place.start(case)
    document = place.check(supervisor)
    (refusal,) = document["refusals"]
    assert refusal["run_waits"]
    assert all(part in refusal["what"] for part in case.says), refusal
    line = supervisor.wait_for_log("the database is away")
    assert refusal["what"].removeprefix("can't reach the database: ") in line["error"]
    assert supervisor.is_alive()
    word = next(word for word in CURES if word in case.state)
    place.bring_about(CURES[word].format(*case.state.split()[1:3], **place.names), outside=True)
    assert comes_up(supervisor)
    assert len([line for line in supervisor.logs() if line["level"] == "warning"]) == 1


def test_a_start_waits_for_the_schema_and_check_names_the_command_that_makes_it(
    empty_database: Database, place_on: Callable[[Database], Place]
) -> None:
    """C52: with the rights given beforehand, the same supervisor starts."""
    place = place_on(empty_database)
    for what in ("usage on schemas", "select, insert, update, delete on tables", "execute on functions"):
        empty_database.execute(f"alter default privileges grant {what} to {empty_database.worker}")
    supervisor = place.start(PLAIN)
    (refusal,) = place.check(supervisor)["refusals"]
    assert refusal["run_waits"]
    line = supervisor.wait_for_log("waiting to start")
    assert line["reason"] == f"{refusal['what']}: {refusal['cure']}"
    place.carry_out(refusal["cure"], supervisor)
    assert comes_up(supervisor)
    empty_database.execute(f"drop owned by {empty_database.worker}")


def test_a_wrong_password_is_waited_out_at_the_start_and_later(
    own_server: Server, own_database: Database, place_on: Callable[[Database], Place]
) -> None:
    """C51: at a start as while it runs: another changes the role's password, and the supervisor goes on by itself."""
    hba = own_server.data / "pg_hba.conf"
    hba.write_text(f"host all {own_database.worker} 127.0.0.1/32 scram-sha-256\n{hba.read_text()}", encoding="utf-8")
    own_database.execute(f"alter role {own_database.worker} password 'another'")
    own_database.execute("select pg_reload_conf()")
    place = place_on(own_database)
    supervisor = place.start(PLAIN)
    supervisor.wait_for_log(lambda line: "password authentication failed" in str(line.get("error")))
    (refusal,) = place.check(supervisor)["refusals"]
    assert "password authentication failed" in refusal["what"]
    assert refusal["run_waits"]
    right = sql.SQL("alter role {} password {}").format(sql.Identifier(own_database.worker), sql.Literal(PASSWORD))
    own_database.owner.execute(right)
    assert comes_up(supervisor)
    jobs = Jobs(own_database)
    assert jobs.wait_for(jobs.enqueue("ok")).attempts == 1

    own_database.execute(f"alter role {own_database.worker} password 'another'")
    own_database.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", [own_database.worker])
    wait_until(lambda: len([line for line in supervisor.logs() if line["event"] == "the database is away"]) > 1, within=10)
    job = jobs.enqueue("ok")
    own_database.owner.execute(right)
    assert jobs.wait_for(job, within=15).attempts == 1
    assert supervisor.is_alive()
    assert secrets_in(supervisor.tail(1000)) == []


# ---- warned of


def test_a_start_warns_of_what_check_warns_of(place: Place) -> None:
    """C47, C66, C120, rule 14: allowed, and said by both in the same words."""
    place.bring_about(WARNED.state)
    supervisor = place.start(WARNED)
    assert comes_up(supervisor)
    document = place.check(supervisor)
    assert document["ok"]
    assert (document["sessions_at_most"], document["sessions_allowed"]) == (6, 4)
    warned = [line["event"] for line in supervisor.logs() if line["level"] == "warning"]
    for part in WARNED.says:
        assert any(place.text(part) in line for line in warned), warned
    assert [line for line in warned if line not in document["warnings"]] == []


def test_supervisors_with_different_leases_are_told_of_each_other(place: Place) -> None:
    """Rule 14: two real ones; the second says so at its start."""
    first = place.start(PLAIN)
    assert comes_up(first)
    wait_until(lambda: place.database.value("select count(*) from fencepost.supervisors") == 1, what="the first one's row")
    second = place.start(PLAIN, lease="8s", heartbeat="2s")
    line = second.wait_for_log("has FENCEPOST_LEASE=6 and FENCEPOST_HEARTBEAT=1.5, here they are 8 and 2")
    assert line["event"] in place.check(second)["warnings"]
    assert comes_up(second)


def test_a_supervisor_goes_on_when_the_schema_becomes_newer(place: Place) -> None:
    """C120: in a rolling deploy; a worker that is started anew meets the newer schema and runs jobs as before."""
    supervisor = place.start(PLAIN)
    assert comes_up(supervisor)
    (worker,) = supervisor.workers()
    place.database.execute("update fencepost.schema_version set version = version + 1")
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: worker not in supervisor.wait_for_workers(1), what="another worker")
    jobs = Jobs(place.database)
    assert jobs.wait_for(jobs.enqueue("ok")).attempts == 1
    newer = fencepost(supervisor, "migrate", DATABASE_URL=place.database.url)
    assert newer.returncode == 78
    assert f"has version {migrate.latest() + 1}, this code has {migrate.latest()}" in newer.stderr


def test_an_idle_supervisor_takes_what_check_reckons_with(place: Place) -> None:
    """D6: a worker has at least so much memory to itself, and no more threads, after it has connected and run a job."""
    supervisor = place.start(PLAIN)
    jobs = Jobs(place.database)
    jobs.wait_for(jobs.enqueue("ok"))
    (worker,) = supervisor.wait_for_workers(1)
    private = [line.split()[1] for line in proc(worker, "smaps_rollup").splitlines() if line.startswith("Private_")]
    assert container.WORKER_MEMORY < sum(map(int, private)) * 1024 < 4 * container.WORKER_MEMORY
    assert f"Threads:\t{container.WORKER_TASKS}\n" in proc(worker, "status")
    assert "Threads:\t1\n" in proc(supervisor.pid, "status")


def proc(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8")


# ---- handlers


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("import no_such_module", "No module named 'no_such_module'"),
        ("", "no handler is registered in spoilt"),
    ],
    ids=["a missing module", "no handler"],
)
def test_handlers_that_do_not_import_are_told_alike_and_start_once_they_do(place: Place, module: str, says: str) -> None:
    """C11, D5: 70 from both, with the same text; mended, the start works."""
    before = place._folder / "spoilt.py"
    before.write_text(module, encoding="utf-8")
    path = {"PYTHONPATH": str(place._folder), "PYTHONDONTWRITEBYTECODE": "1"}
    supervisor = place.start(PLAIN, handlers="spoilt", environment=path)
    document = check(supervisor)
    assert supervisor.wait(5) == 70
    assert (document["ok"], document["refusals"]) == (False, [])
    assert says in document["handlers_error"]
    assert "\n".join(said(supervisor)) == f"the handlers don't import: {document['handlers_error']}"
    before.write_text("from fencepost import handler\n\n@handler('ok')\ndef ok(job): ...\n", encoding="utf-8")
    assert comes_up(place.start(PLAIN, handlers="spoilt", environment=path))


def test_handlers_that_kill_their_process_are_told_alike(place: Place) -> None:
    """D5: check tries once, run five times; both say how it died."""
    supervisor = place.start(PLAIN, handlers="segfaults_at_import")
    document = check(supervisor)
    assert document["handlers_error"].startswith("importing ended the process: killed by SIGSEGV (signal 11)")
    assert supervisor.wait(15) == 70
    (line,) = said(supervisor)
    assert line.startswith("no worker can start, 5 tries of slot 1 ended: killed by SIGSEGV (signal 11)")


def test_handlers_that_take_too_long_to_import_are_told_by_check_and_tried_again_by_run(place: Place) -> None:
    """D1: slow is not wrong, so the supervisor stays; check says that BOOT_TIMEOUT was not enough."""
    supervisor = place.start(PLAIN, handlers=f"hangs_at_first_import,{HANDLERS}", boot_timeout="1.5s")
    killed = supervisor.wait_for_log(lambda line: line["event"] == "a worker has died" and line["killed_by_us"])
    assert not killed["ready"]
    assert comes_up(supervisor)
    (supervisor.folder / "imported").unlink()
    document = check(supervisor)
    assert document["handlers_error"] == "importing took longer than FENCEPOST_BOOT_TIMEOUT, 1.5 s"


# ---- settings


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        (
            {
                "concurrency": ("0", "must be at least 1"),
                "lease": ("abc", "such as 30s"),
                "allow_bypassrls": ("x", "yes or no"),
                "handlers": ("", "must name the modules"),
            },
            {"concurrency": "1", "lease": "30s", "allow_bypassrls": "no", "handlers": HANDLERS},
        ),
        (
            {
                "heartbeat": ("5", "must be at most 1.797, so that one may fail"),
                "backoff_max": ("0.5", "must be at least FENCEPOST_BACKOFF, 1"),
                "tenant_setting": ("tenant", "such as app.tenant"),
            },
            {"heartbeat": "1.5s", "backoff_max": "1", "tenant_setting": "app.tenant"},
        ),
    ],
    ids=["no values", "contradictions"],
)
def test_wrong_settings_are_told_alike_and_start_once_they_are_right(
    place: Place, wrong: dict[str, tuple[str, str]], right: dict[str, str]
) -> None:
    """All at once, 78, and as the document of --json too."""
    supervisor = place.start(PLAIN, **{name: value for name, (value, _) in wrong.items()})
    checked = fencepost(supervisor, "check")
    document = place.check(supervisor)
    assert supervisor.wait(5) == checked.returncode == 78
    assert checked.stdout == ""
    assert checked.stderr.splitlines() == supervisor.lines()
    lines = supervisor.lines()[1:]
    assert len(lines) == len(wrong) == len(document["refusals"])
    for line, refusal in zip(lines, document["refusals"], strict=True):
        assert line.split(maxsplit=1) == [refusal["what"], refusal["cure"]]
    for name, (value, cure) in wrong.items():
        assert any(f"FENCEPOST_{name.upper()}={value} " in line and cure in line for line in lines)
    assert comes_up(place.start(PLAIN, **right))


def test_an_address_that_can_not_be_read_is_told_alike_and_without_its_password(start_supervisor: Start) -> None:
    """C132: an unescaped @ or bracket in a password, as operators paste it."""
    supervisor = start_supervisor(f"postgresql://me:{PASSWORD}@127.0.0.1:x/db")
    checked = fencepost(supervisor, "check")
    assert supervisor.wait(5) == checked.returncode == 78
    assert checked.stderr.splitlines() == supervisor.lines()
    assert "must be a libpq URI" in supervisor.lines()[1]
    assert secrets_in(checked.stderr) == []
