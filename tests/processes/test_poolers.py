"""Behind a real PgBouncer that gives a session away after each transaction, and beside one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection, sql

from fencepost import checks
from fencepost import settings as settings_module
from fencepost.jobs.pooler import connect
from support import nursery
from support.databases import Database
from support.jobs import Jobs
from support.left_in_sessions import FOUND, LEFT
from support.poolers import Pooler, program
from support.processes import Supervisor
from support.waiting import wait_until

pytestmark = pytest.mark.skipif(program() is None, reason="not installed: apt-get install pgbouncer")

HANDLERS = "handlers_for_tests,handlers_of_accidents,handlers_of_poolers"

SHARED: dict[str, Any] = {"default_pool_size": 1, "query_wait_timeout": 20}
"""One session for all clients: what one leaves in it, the next one finds."""


@pytest.fixture
def start_pooler(database: Database) -> Iterator[Callable[..., Pooler]]:
    """Start poolers before `database`, with settings as keywords; all are ended with the test."""
    started: list[Pooler] = []

    def start(**settings: object) -> Pooler:
        started.append(Pooler(database, **settings))
        return started[-1]

    yield start
    for one in started:
        print(f"---- the log of PgBouncer:\n{one.log()}")
        one.close()


@pytest.fixture
def start(
    start_pooler: Callable[..., Pooler], start_supervisor: Callable[..., Supervisor]
) -> Callable[..., tuple[Supervisor, Pooler]]:
    """Start a supervisor behind a pooler of its own."""

    def start_both(of_pooler: dict[str, Any] | None = None, **settings: Any) -> tuple[Supervisor, Pooler]:
        before = start_pooler(**(of_pooler or {}))
        known = {"handlers": HANDLERS, "pooler": "transaction", "poll": "0.2s", **settings}
        return start_supervisor(before.url(), **known), before

    return start_both


@pytest.fixture
def role(database: Database) -> Iterator[str]:
    """A role that the worker's login may take on, and that may do no more than end a transaction of a job."""
    name = f"left_{database.name}"
    database.execute(
        f"""
        create role {name};
        grant {name} to {database.worker};
        grant usage on schema fencepost to {name};
        grant execute on function fencepost.hold, fencepost.finish to {name};
        """
    )
    yield name
    database.execute(f"drop owned by {name}; drop role {name}")


def others_find(pooler: Pooler) -> list[str]:
    """Return what another client of the pooler finds in the session that it gets."""
    with psycopg.connect(pooler.url(), autocommit=True, application_name="another") as conn:
        return [what for (what,) in conn.execute(FOUND, {"tenant": ""}, prepare=False)]


# ---- what is left in sessions


def test_what_a_job_leaves_behind_a_pooler_is_there_for_nobody(
    start: Callable[..., tuple[Supervisor, Pooler]], jobs: Jobs, role: str
) -> None:
    """C56, C62, promise 9: committed or rolled back, in each way of having a transaction, for jobs and for other clients.

    Nor is anything prepared there, though thirty jobs execute one query ten times each.
    """
    supervisor, pooler = start(SHARED, concurrency=1, max_attempts=1)
    supervisor.wait_for_workers(1)
    ways: list[tuple[str, dict[str, Any]]] = [
        ("leaves_its_session", {}),
        ("leaves_its_session", {"raises": True}),
        ("leaves_its_session_once", {}),
        ("leaves_its_session_async", {}),
        ("leaves_its_session_async", {"raises": True}),
    ]
    for kind, payload in ways:
        ended = jobs.wait_for(jobs.enqueue(kind, {"role": role, **payload}), ("done", "dead"))
        assert ended.status == ("dead" if payload else "done"), ended.last_error
        assert (others_find(pooler), kind, payload) == ([], kind, payload)
        told = jobs.wait_for(jobs.enqueue("tells_its_session", tenant=2)).result
        assert told == {"found": [], "styles": "ISO, MDY, postgres", "level": "read committed"}
    enqueued = [jobs.enqueue("asks_much") for _ in range(30)]
    assert {jobs.wait_for(job).result for job in enqueued} == {0}
    assert others_find(pooler) == []
    assert [line for line in supervisor.logs() if line["level"] in ("warning", "error")] == []


def test_what_others_have_left_in_a_poolers_session_is_not_there_for_a_job(
    start: Callable[..., tuple[Supervisor, Pooler]], jobs: Jobs, database: Database, role: str
) -> None:
    """Nor for our own statements: a role without any right, another search path, styles that can't be read."""
    for setting in ("datestyle = 'German'", "intervalstyle = 'iso_8601'", "default_transaction_isolation = 'serializable'"):
        database.execute(f"alter role {database.worker} set {setting}")
    supervisor, pooler = start(SHARED, concurrency=1)
    supervisor.wait_for_workers(1)
    with psycopg.connect(pooler.url(), autocommit=True) as conn:
        conn.execute(f"{LEFT} set role {role}")
        assert "lock" in others_find(pooler)
        job = jobs.enqueue("tells_its_session", tenant=2, max_runtime=50)
        told = jobs.wait_for(job).result
    # To listen is given up with the commit.
    assert told == {"found": ["listening left_here"], "styles": "ISO, DMY, postgres", "level": "read committed"}
    assert others_find(pooler) == []
    assert [line for line in supervisor.logs() if line["level"] in ("warning", "error")] == []


def test_a_session_that_others_have_left_reading_only_is_no_obstacle_twice(
    start_pooler: Callable[..., Pooler], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails by it does so once, as on a server that only reads; what it has found is reset all the same."""
    pooler = start_pooler(**SHARED)
    monkeypatch.setenv("DATABASE_URL", pooler.url())
    monkeypatch.setenv("FENCEPOST_POOLER", "transaction")
    write = sql.SQL("insert into test.rows (job, attempt, note) values (1, 1, '')")
    with psycopg.connect(pooler.url(), autocommit=True) as other, connect(settings_module.read(), "ours") as ours:
        other.execute("set default_transaction_read_only = on")
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            ours.execute(write)
        ours.execute(write)


# ---- how runs end


def test_jobs_of_many_tenants_run_fail_crash_and_are_taken_over_behind_a_pooler(
    start: Callable[..., tuple[Supervisor, Pooler]],
    start_supervisor: Callable[..., Supervisor],
    jobs: Jobs,
    database: Database,
) -> None:
    """Promises 1, 3, 6, 7: each ends as it would without one; and those of a killed supervisor are run by another."""
    settings = {"lease": "2.5s", "heartbeat": "0.6s", "backoff": "0s", "handlers": HANDLERS, "pooler": "transaction"}
    killed, pooler = start(concurrency=1, **settings)
    held = jobs.enqueue("rests_in_its_one_transaction", {"seconds": 60}, max_attempts=2)
    jobs.wait_for_mark(held, note="written")
    killed.signal(signal.SIGKILL)
    other = start_supervisor(pooler.url(), concurrency=2, poll="0.2s", **settings)
    kinds = ["writes", "writes_once", "fails", "kills_itself", "commits_by_sql", "leaves_a_transaction_open", "opens_its_own"]
    enqueued = [(kind, jobs.enqueue(kind, tenant=tenant, max_attempts=1)) for tenant in range(3) for kind in kinds]
    ends = {"fails": "failed", "kills_itself": "crashed", "commits_by_sql": "failed", "leaves_a_transaction_open": "failed"}
    for kind, job in enqueued:
        jobs.wait_for(job, ("done", "dead"), within=20)
        assert (kind, jobs.outcomes(job)) == (kind, [ends.get(kind, "done")])
        assert len(jobs.rows(job)) == (kind in ("writes", "writes_once")), kind
    assert jobs.wait_for(held, within=10).attempts == 2
    assert (jobs.outcomes(held), len(jobs.rows(held))) == (["lost", "done"], 1)
    assert database.value("select count(*) from fencepost.supervisors where not listening") >= 1
    other.signal(signal.SIGTERM)
    assert other.wait() == 0


def test_a_killed_workers_transaction_is_over_before_its_job_runs_again_behind_a_pooler(
    start: Callable[..., tuple[Supervisor, Pooler]], jobs: Jobs, database: Database
) -> None:
    """C07, rules 8, 16 and 17: nobody ends the session, which may be another's by then; its end is waited for."""
    supervisor, _ = start(concurrency=1, backoff="0s")
    job = jobs.enqueue("waits_on_the_server", {"seconds": 1.5})
    wait_until(
        lambda: database.value("select count(*) from pg_stat_activity where query like '/* slowly%%'"), what="the statement"
    )
    os.kill(supervisor.wait_for_worker_of(job), signal.SIGKILL)
    assert jobs.wait_for(job).result == 0
    assert (jobs.outcomes(job), len(jobs.rows(job))) == (["crashed", "done"], 1)


def test_cancel_and_drain_end_runs_behind_a_pooler(
    start: Callable[..., tuple[Supervisor, Pooler]], jobs: Jobs, database: Database
) -> None:
    """A cancel is seen by the next heartbeat, a drain stops what goes on and puts it back uncounted."""
    database.execute(f"grant execute on function fencepost.cancel to {database.worker}")
    supervisor, _ = start(heartbeat="0.5s", drain_timeout="0.2s")
    job, other = jobs.enqueue("slow", {"seconds": 60}), jobs.enqueue("slow", {"seconds": 60})
    for one in (job, other):
        jobs.wait_for_mark(one)
    done = nursery.run(["cancel", str(job), "--json"], supervisor.folder, supervisor.environment)
    assert json.loads(done.stdout)["jobs"][0]["status"] == "cancelled", done.stderr
    shown = nursery.run(["list", "--json"], supervisor.folder, supervisor.environment)
    assert json.loads(shown.stdout)["jobs"][0]["id"] == other, shown.stderr
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 75
    assert (jobs[other].status, jobs[other].attempts) == ("queued", 0)


def test_a_pooler_that_is_started_anew_costs_an_open_transaction_and_no_more(
    start: Callable[..., tuple[Supervisor, Pooler]], jobs: Jobs
) -> None:
    """C42, rule 8: one run goes on, and is done; one has lost its transaction, and begins again once that is over."""
    _, pooler = start(concurrency=2, backoff="0s")
    job, once = jobs.enqueue("slow", {"seconds": 0.8}), jobs.enqueue("rests_in_its_one_transaction", {"seconds": 0.8})
    jobs.wait_for_mark(job)
    jobs.wait_for_mark(once, note="written")
    pooler.restart()
    assert jobs.wait_for(job, within=15).attempts == 1
    assert jobs.wait_for(once, within=15).attempts == 2
    assert (jobs.outcomes(once), len(jobs.rows(once))) == (["failed", "done"], 1)


# ---- listening


def test_beside_a_pooler_a_direct_connection_listens(
    start: Callable[..., tuple[Supervisor, Pooler]], jobs: Jobs, database: Database
) -> None:
    """C112: jobs start at once though polls are far apart, a cancel is heard at once, and status and log tell the mode."""
    supervisor, _ = start(poll="60s", heartbeat="3s", lease="12s", listen_url=database.worker_url)
    wait_until(lambda: database.execute("select listening from fencepost.supervisors") == [(True,)], what="that it listens")
    supervisor.wait_for_workers(2)
    row = jobs.wait_for(jobs.enqueue("ok"), within=5)
    assert (row.started_at - row.created_at).total_seconds() < 2
    told = json.loads(nursery.run(["status", "--json"], supervisor.folder, supervisor.environment).stdout)
    assert told["supervisors"][0]["mode"] == "listening"
    assert supervisor.wait_for_log("the supervisor starts")["mode"] == "listening by FENCEPOST_LISTEN_URL"
    assert [line for line in supervisor.logs() if line["level"] in ("warning", "error")] == []


def test_where_listening_is_off_nothing_listens_and_polls_start_jobs(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C112: it is off where a pooler is said to be there, whether it is or not; status and log name the mode."""
    supervisor = start_supervisor(pooler="transaction", poll="0.5s")
    supervisor.wait_for_workers(2)
    row = jobs.wait_for(jobs.enqueue("ok"))
    assert (row.started_at - row.created_at).total_seconds() < 0.5 + 0.5
    assert supervisor.wait_for_log("the supervisor starts")["mode"].startswith("polling")
    told = json.loads(nursery.run(["status", "--json"], supervisor.folder, supervisor.environment).stdout)
    assert told["supervisors"][0]["mode"] == "polling"
    listens = "select count(*) from pg_stat_activity where query ilike 'listen%%' or application_name like '%% listen'"
    assert database.value(f"{listens} and datname = current_database()") == 0


def test_a_listen_url_that_does_not_hear_of_jobs_is_warned_of(
    start_pooler: Callable[..., Pooler], start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C112: one leads to another database, one to a pooler, one nowhere: each is told once, and polls go on."""
    pooler = start_pooler(ignore_startup_parameters="options", **SHARED)
    urls = [
        database.server.url("postgres", database.worker),
        pooler.url(),
        "postgresql://nobody@127.0.0.1:1/nothing",
    ]
    supervisors = [start_supervisor(listen_url=url, concurrency=1, poll="0.5s") for url in urls]
    for supervisor in supervisors:
        supervisor.wait_for_log("FENCEPOST_LISTEN_URL does not tell of jobs")
    jobs.wait_for(jobs.enqueue("ok"))
    assert database.execute("select listening from fencepost.supervisors") == [(False,)] * 3
    assert others_find(pooler) == []


# ---- a pooler that no setting tells of


def test_a_pooler_that_no_setting_tells_of_is_refused_with_the_cure(
    start_pooler: Callable[..., Pooler], start_supervisor: Callable[..., Supervisor]
) -> None:
    """It refuses what a session is asked for at its start, or drops it: run, check and the other commands say what to do."""
    cure = "set FENCEPOST_POOLER=transaction, or connect directly"
    poolers = [start_pooler(), start_pooler(ignore_startup_parameters="options")]
    refusing, dropping = (start_supervisor(pooler.url()) for pooler in poolers)
    for supervisor in (refusing, dropping):
        assert supervisor.wait() == 78
        assert cure in supervisor.stderr.read_text()
        told = json.loads(nursery.run(["check", "--json"], supervisor.folder, supervisor.environment).stdout)
        (refusal,) = told["refusals"]
        assert (refusal["cure"], refusal["run_waits"]) == (cure, False)
    done = nursery.run(["list"], refusing.folder, refusing.environment)
    assert (done.returncode, cure in done.stderr, done.stderr.count("\n")) == (78, True, 1)


def test_what_answers_in_the_servers_place_is_warned_of(
    start_pooler: Callable[..., Pooler], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it keeps what is asked of a session, it is known by another process' number than the client was told."""
    pooler = start_pooler()

    async def warnings(url: str) -> list[str]:
        async with await AsyncConnection.connect(url, autocommit=True) as conn:
            return await checks.warnings(conn, settings_module.read())

    assert asyncio.run(warnings(database.worker_url)) == []
    (line,) = asyncio.run(warnings(pooler.url()))
    assert "if it pools transactions, set FENCEPOST_POOLER=transaction" in line
    monkeypatch.setenv("FENCEPOST_POOLER", "transaction")
    assert asyncio.run(warnings(pooler.url())) == []
