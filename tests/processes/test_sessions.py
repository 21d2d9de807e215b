"""What happens to our sessions and to those of jobs: ended, refused, held, shared, grown old."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from support import nursery
from support.databases import Database
from support.jobs import Jobs
from support.processes import Supervisor
from support.tls import TlsProxy
from support.waiting import wait_until

HANDLERS = "handlers_for_tests,handlers_of_sessions"

END = "select pg_terminate_backend(pid) from pg_stat_activity where application_name like %s and datname = current_database()"
OURS = "select count(*) from pg_stat_activity where application_name like 'fencepost%%' and datname = current_database()"


def wait_out(seconds: float) -> None:
    """Wait out a length of time that is itself what is tested."""
    began = time.monotonic()
    wait_until(lambda: time.monotonic() - began > seconds, within=seconds + 1, what="the end of a length of time")


def seconds_to_start(row: Any) -> float:
    """Return how long a job had waited when it started."""
    return float((row.started_at - row.created_at).total_seconds())


# ---- ended by someone


def test_a_lease_goes_on_after_each_of_the_supervisors_sessions_was_ended(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C44: prolonged again within 3 s, by the same supervisor; and what dies afterwards is still booked and run again."""
    supervisor = start_supervisor(concurrency=1, lease="5s", heartbeat="0.8s", poll="30s", backoff="0s", drain_timeout="0.5s")
    job = jobs.enqueue("slow", {"seconds": 60})
    jobs.wait_for_mark(job)
    worker = supervisor.wait_for_worker_of(job)
    sessions_of = (
        "select application_name from pg_stat_activity where application_name like %s and datname = current_database()"
    )

    def duties() -> list[str]:
        (row,) = wait_until(lambda: database.execute("select name from fencepost.supervisors"), what="the supervisor's row")
        return sorted(name.split()[-1] for (name,) in database.execute(sessions_of, [f"fencepost {row.name} %"]))

    for duty in wait_until(lambda: found if len(found := duties()) >= 3 else [], what="all of the supervisor's sessions"):
        before = jobs[job].locked_until
        assert database.execute(END, [f"fencepost % {duty}"]), duty
        wait_until(lambda before=before: jobs[job].locked_until > before, within=3, what=f"a beat after the end of {duty}")
    assert (jobs[job].attempts, supervisor.worker_of(job)) == (1, worker)
    os.kill(worker, signal.SIGKILL)
    jobs.wait_for_mark(job, attempt=2, within=5 + 1 + 4)
    assert jobs.outcomes(job) == ["crashed"]


def test_jobs_start_by_polls_while_the_listening_session_is_ended_again_and_again(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C112: within a poll and half a second; and in the end it listens again, as its row says."""
    supervisor = start_supervisor(concurrency=2, poll="1s")
    supervisor.wait_for_workers(2)
    listening = "select listening from fencepost.supervisors"
    wait_until(lambda: database.execute(listening) == [(True,)], what="the supervisor that listens")
    for _ in range(4):
        assert wait_until(lambda: database.execute(END, ["% listen"]), what="the listening session")
        row = jobs.wait_for(jobs.enqueue("ok"))
        assert (row.attempts, seconds_to_start(row) < 1 + 0.5) == (1, True), seconds_to_start(row)
    wait_until(lambda: database.execute(listening) == [(True,)], what="the supervisor that listens again")


# ---- refused


def test_a_supervisor_needs_no_more_sessions_than_check_reckons_with(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C47: while all of its workers claim, run and hold transactions: as many as there are, and not one more."""
    supervisor = start_supervisor(handlers=HANDLERS, concurrency=4)
    supervisor.wait_for_workers(4)
    made = [jobs.enqueue("rests_in_a_transaction", {"seconds": 2.0}) for _ in range(4)]
    most = wait_until(lambda: found if (found := database.value(OURS)) >= 3 + 2 * 4 else 0, what="two sessions a worker")
    while not all(jobs[job].status == "done" for job in made):
        most = max(most, database.value(OURS))
    told = json.loads(nursery.run(["check", "--json"], supervisor.folder, supervisor.environment).stdout)
    assert most <= told["sessions_at_most"] == 4 + 2 * 4


def test_workers_without_a_session_wait_for_one_and_the_others_do_the_work(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C47: four workers where the role may have four sessions: no worker dies of it, none tries more than once a second."""
    database.execute(f"alter role {database.worker} connection limit 4")
    supervisor = start_supervisor(concurrency=4, poll="0.5s")
    workers = supervisor.wait_for_workers(4)
    made = [jobs.enqueue("quick") for _ in range(20)]
    began = time.monotonic()
    for job in made:
        assert jobs.wait_for(job, within=20).attempts == 1
    wait_out(3)
    refused = [line for line in database.log_lines() if "too many connections for role" in line]
    refused += [line for line in database.server.log.read_text().splitlines() if f'for role "{database.worker}"' in line]
    assert refused
    # Its workers, and the supervisor itself.
    assert len(set(refused)) <= (4 + 1) * (time.monotonic() - began + 1)
    assert supervisor.workers() == workers
    assert supervisor.wait_for_log(lambda line: "too many connections for role" in str(line.get("error")))
    assert supervisor.wait_for_log("may need 12 sessions, and role")


# ---- held


def test_a_job_that_reckons_inside_its_transaction_is_not_ended_by_the_roles_time_limit(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C49: the server's limit on idle transactions gives way to the job's own max runtime."""
    database.execute(f"alter role {database.worker} set idle_in_transaction_session_timeout = '300ms'")
    start_supervisor(handlers=HANDLERS, concurrency=1)
    job = jobs.enqueue("writes_slowly", {"seconds": 1.2})
    once = jobs.enqueue("writes_once", {"seconds": 1.2})
    assert jobs.wait_for(job).attempts == 1
    assert [row.note for row in jobs.rows(job)] == ["first", "second"]
    assert jobs.wait_for(once).attempts == 1
    assert jobs.wait_for(jobs.enqueue("ok")).attempts == 1


def test_a_job_that_takes_all_the_sessions_it_can_get_has_one(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C61: the others are refused in words, at once; the lease is kept, and other workers claim as usual."""
    start_supervisor(handlers=HANDLERS, concurrency=2, lease="3s", heartbeat="0.6s")
    job = jobs.enqueue("begins_in_many_threads", {"seconds": 4})
    jobs.wait_for_mark(job)
    least = 3.0
    while (row := jobs[job]).status == "running":
        least = min(least, jobs.seconds_until(row.locked_until))
        beside = jobs.wait_for(jobs.enqueue("quick"))
        assert seconds_to_start(beside) < 1
    assert (row.status, row.attempts) == ("done", 1)
    assert row.result == ["a transaction of this job is open already: leave its `with` block first"] * 4
    assert least > 1


def test_what_a_killed_job_was_doing_on_the_server_is_ended_and_its_locks_are_free(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C07: on the connection that it was handed as on one that it opened itself; 2 s behind its max runtime."""
    start_supervisor(handlers=HANDLERS, concurrency=2)
    database.execute("insert into test.rows (job, attempt) values (-1, 0), (-2, 0)")
    made = [
        jobs.enqueue("holds_rows_on_the_server", {"row": -number, "own": number == 2}, max_runtime=1, max_attempts=1)
        for number in (1, 2)
    ]
    sleeping = "select count(*) from pg_stat_activity where query like '%%pg_sleep(119)' and datname = current_database()"
    wait_until(lambda: database.value(sleeping) == 2, what="both statements")
    for job in made:
        row = jobs.wait_for(job, "dead")
        assert (row.finished_at - row.started_at).total_seconds() < 1 + 2
        assert jobs.outcomes(job) == ["overran"]
    database.execute("set lock_timeout = '500ms'")
    database.execute("update test.rows set note = note || 'free' where job < 0")
    assert [row.note for row in jobs.rows()] == ["free", "free"]


# ---- shared


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "TLS"])
def test_a_pool_that_is_opened_at_import_is_each_workers_own(
    start_supervisor: Callable[..., Supervisor],
    jobs: Jobs,
    database: Database,
    start_tls: Callable[[int], TlsProxy],
    *,
    encrypted: bool,
) -> None:
    """C55: no answer goes to another process, and no backend answers two; nor do the sessions of our own."""
    url = start_tls(database.server.port).url(database.worker_url) if encrypted else database.worker_url
    supervisor = start_supervisor(url=url, handlers="opens_a_pool_at_import,handlers_for_tests", concurrency=3)
    supervisor.wait_for_workers(3)
    made = [jobs.enqueue("asks_the_pool") for _ in range(60)]
    processes: dict[int, set[int]] = defaultdict(set)
    for job in made:
        row = jobs.wait_for(job, within=20)
        assert (row.attempts, row.result["right"]) == (1, True)
        for backend in row.result["backends"]:
            processes[backend].add(row.result["pid"])
    assert all(len(pids) == 1 for pids in processes.values()), processes
    assert len({pid for pids in processes.values() for pid in pids}) == 3
    assert not [line for line in supervisor.logs() if line["level"] in ("warning", "error")]


# ---- grown old


def test_a_changed_table_costs_no_session_and_no_attempt(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C57, C38: a column more on the queue and on a table of tenants, while jobs run: no plan of before is missed.

    Nothing of ours is in the way of the change either: it has the locks within its 2 s, whatever runs.
    """
    database.execute("create table test.notes as select id from generate_series(0, 2) id; grant select on test.notes to public")
    supervisor = start_supervisor(handlers=HANDLERS, concurrency=2)
    workers = supervisor.wait_for_workers(2)

    def columns() -> set[int]:
        rows = [jobs.wait_for(job) for job in [jobs.enqueue("reads_notes") for _ in range(20)]]
        assert {row.attempts for row in rows} == {1}
        return {row.result for row in rows}

    assert columns() == {1}
    beside = [jobs.enqueue("rests", {"seconds": 2.5}) for _ in range(2)]
    wait_until(lambda: [jobs[job].status for job in beside] == ["running"] * 2, what="two jobs that run")
    database.execute("set lock_timeout = '2s'")
    database.execute("alter table fencepost.jobs add column colour text")
    database.execute("alter table test.notes add column colour text")
    for job in beside:
        assert jobs.wait_for(job).attempts == 1
    assert columns() == {2}
    assert supervisor.workers() == workers
    assert not [line for line in supervisor.logs() if line["level"] in ("warning", "error")]
