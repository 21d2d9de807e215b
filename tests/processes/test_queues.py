"""Queues and installations side by side: what is one's own is started by its own supervisor, and told to nobody else."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

from fencepost import enqueue
from support.databases import Database
from support.jobs import Jobs
from support.processes import Supervisor
from support.waiting import wait_until

ALIKE = "x" * 79
"""Two queues share it, and more than the 63 bytes that PostgreSQL keeps of a name."""

LEASED = """
    update fencepost.jobs set status = 'running', attempts = 1, max_attempts = 3, fence = 1, locked_by = 'gone:1',
        locked_until = clock_timestamp() + interval '1 minute', started_at = clock_timestamp()
    where id = %s
"""
LAST_USED = """
    select application_name, max(state_change) from pg_stat_activity
    where application_name = any (%s) and datname = current_database() group by 1 order by 1
"""


def sessions_of_workers(supervisor: Supervisor) -> list[str]:
    """Return the names of the sessions of a supervisor's workers."""
    return [f"fencepost {line['worker']}" for line in supervisor.logs() if line["event"] == "a worker is ready"]


def idle(supervisor: Supervisor) -> bool:
    """Whether its workers have nothing to do, and it knows them to be ready."""
    supervisor.wait_for_log("a worker is ready")
    return all(title.endswith("idle") for title in supervisor.titles(supervisor.wait_for_workers(1)))


def test_a_queue_of_any_name_is_served_at_once_by_the_supervisor_that_serves_it(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """C85: by notification, with polls far apart; one whose first 79 characters are another's is not that other."""
    odd = ["My Queue", "a.b", 'x";drop', "\N{PILE OF POO}", f"{ALIKE}1"]
    first = start_supervisor(concurrency=1, poll="30s", queues=",".join(odd))
    second = start_supervisor(concurrency=1, poll="30s", queues=f"{ALIKE}2")
    for supervisor in (first, second):
        wait_until(lambda supervisor=supervisor: idle(supervisor), what="idle workers")
    workers = dict.fromkeys(odd, first) | {f"{ALIKE}2": second}
    for queue, supervisor in workers.items():
        job = jobs.enqueue("ok", queue=queue)
        row = jobs.wait_for(job)
        assert (row.started_at - row.created_at).total_seconds() < 2, queue
        (mark,) = jobs.marks(job)
        assert [mark.pid] == supervisor.workers(), queue


def test_a_loud_tenant_with_a_queue_of_its_own_does_not_hold_up_the_others(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C101: another's job starts within 2 s, before hundreds that wait and are more urgent in their own queue."""
    start_supervisor(concurrency=2, queues="default,loud", log_level="info")
    database.execute(
        "select fencepost.enqueue('slow', '{\"seconds\": 0.02}', tenant => 'loud', queue => 'loud', priority => -9)"
        " from generate_series(1, 600)"
    )
    wait_until(jobs.marks, what="the first of them")
    job = jobs.enqueue("ok", tenant="quiet", priority=9)
    row = jobs.wait_for(job)
    assert (row.started_at - row.created_at).total_seconds() < 2
    assert database.value("select count(*) from fencepost.jobs where queue = 'loud' and status = 'queued'") > 400


def test_what_lands_below_the_keys_that_a_busy_worker_has_reached_starts_within_two_seconds(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """Promise 11: a job that was due earlier, a commit that comes late, one given back, and a priority that is new."""
    given_back = jobs.enqueue("ok")
    with database.conn(autocommit=False) as conn:
        late = enqueue(conn, "ok", tenant=1)
        database.execute(LEASED, [given_back])
        database.execute("select fencepost.enqueue('slow', '{\"seconds\": 0.02}', tenant => '1') from generate_series(1, 600)")
        start_supervisor(concurrency=1, log_level="info")
        wait_until(lambda: len(jobs.marks()) > 5, what="the first of them")
        conn.commit()
    landed = database.value("select clock_timestamp()")
    database.execute("select fencepost.finish(%s, 1, 'gone:1', 'lost')", [given_back])
    early = enqueue(database.owner, "ok", tenant=1, run_at=landed - timedelta(hours=1))
    urgent = jobs.enqueue("ok", priority=-7)
    for job in (late, given_back, early, urgent):
        assert (jobs.wait_for(job).started_at - landed).total_seconds() < 2, job
    assert database.value("select count(*) from fencepost.jobs where status = 'queued'") > 200


def test_two_installations_in_one_database_know_nothing_of_each_other(
    start_supervisor: Callable[..., Supervisor], empty_database: Database
) -> None:
    """C111, C118: each has its schema, of any name, and its channel; no search path is needed, and none misleads."""
    database = empty_database
    database.add_test_tables()
    for schema in ("Jobs-1", "fencepost"):
        database.migrate(schema)
        database.grant(schema)
    database.execute(f"alter role {database.worker} set search_path = ''")
    settings = {"handlers": "handlers_for_tests,handlers_of_sessions", "concurrency": 1, "poll": "30s"}
    one, other = (start_supervisor(url=database.worker_url, schema=schema, **settings) for schema in ("Jobs-1", "fencepost"))
    for supervisor in (one, other):
        wait_until(lambda supervisor=supervisor: idle(supervisor), what="idle workers")
    before = database.execute(LAST_USED, [sessions_of_workers(other)])
    assert before
    there = 'select status, attempts, started_at - created_at as waited from "Jobs-1".jobs order by id'
    for kind in ("ok", "changes_its_search_path", "writes", "changes_its_search_path", "writes_once"):
        database.execute('select "Jobs-1".enqueue(%s, tenant => %s)', [kind, "1"])
        wait_until(lambda: {row.status for row in database.execute(there)} == {"done"}, what=f"the end of {kind}")
    assert all((row.attempts, row.waited.total_seconds() < 2) == (1, True) for row in database.execute(there))
    assert database.value("select count(*) from test.rows") == 2
    assert database.value("select count(*) from fencepost.jobs") == 0
    assert database.execute(LAST_USED, [sessions_of_workers(other)]) == before
    assert database.value("select count(*) from pg_class where relnamespace = 'public'::regnamespace") == 0


def test_nobody_notifies_while_all_are_busy_and_what_is_committed_late_is_found_soon(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """Who enqueues at full speed is not slowed by it; and who had read that, and commits when there is one idle, is found."""
    handlers = "handlers_for_tests,handlers_of_accidents,handlers_of_statements"
    supervisor = start_supervisor(handlers=handlers, concurrency=1, poll="60s", log_level="info")
    told = "select bool_and(told) from fencepost.supervisors"
    wait_until(lambda: database.value(told), what="a supervisor that is to be told")
    heard: list[str] = []
    with database.conn() as listener, database.conn(autocommit=False) as late:
        listener.add_notify_handler(lambda notify: heard.append(notify.payload))
        listener.execute("listen fencepost")
        release = supervisor.folder / "go"
        busy = jobs.enqueue("waits_for_a_file", {"path": str(release)})
        listener.execute("select 1")
        assert heard == ["default"]
        wait_until(lambda: database.value(told) is False, what="a supervisor all of whose workers are busy")
        waiting = jobs.enqueue("ok")
        (job,) = late.execute("select fencepost.enqueue('ok', tenant => '1')").fetchone()
        listener.execute("select 1")
        assert heard == ["default"]
        release.touch()
        for one in (busy, waiting):
            jobs.wait_for(one)
        wait_until(lambda: database.value(told), what="a supervisor that is to be told again")
        told_at = time.monotonic()
        wait_until(lambda: time.monotonic() - told_at > 0.5, what="the looks that follow at once")
        late.commit()
        # It is not told, and its poll is a minute away.
        jobs.wait_for(job, within=8)
        listener.execute("select 1")
        assert heard == ["default"]
        jobs.wait_for(jobs.enqueue("ok"), within=2)
        listener.execute("select 1")
        assert heard == ["default", "default"]
