"""The database goes away: stopped, crashed, read-only, its sessions ended. The supervisor stays."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from support.databases import Database
from support.jobs import Jobs
from support.processes import Supervisor
from support.servers import Server
from support.waiting import wait_until

OUTAGE = 20.0


def wait_for_the_end_of(seconds: float) -> None:
    """Wait out a length of time that is itself what is tested."""
    began = time.monotonic()
    wait_until(lambda: time.monotonic() - began > seconds, within=seconds + 1, what="the outage's end")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", ["fast", "killed"])
def test_an_outage_within_the_lease_loses_nothing_and_repeats_nothing(
    start_supervisor: Callable[..., Supervisor], own_server: Server, own_database: Database, how: str
) -> None:
    """C40, D3: 20 s without a database under load; the same supervisor, each job once at a time, new work within 5 s."""
    jobs = Jobs(own_database)
    supervisor = start_supervisor(own_database.worker_url, concurrency=3, lease="60s", heartbeat="15s", max_attempts=10)
    supervisor.wait_for_workers(3)
    # One that uses no database while it is away, and load around it.
    through = jobs.enqueue("sleeps_without_database", {"seconds": 15})
    load = [jobs.enqueue("writes_once", {"seconds": 0.05}) for _ in range(100)]
    due = jobs.enqueue("ok", after=5, priority=-1)
    supervisor.wait_for_worker_of(through)
    jobs.wait_for(load[5])
    own_database.close()
    if how == "fast":
        own_server.stop("fast")
    else:
        own_server.kill()
    wait_for_the_end_of(OUTAGE)
    assert supervisor.is_alive()
    own_server.start()
    back_at = time.monotonic()
    fresh = jobs.enqueue("ok", priority=-1)
    jobs.wait_for_mark(fresh, within=5 - (time.monotonic() - back_at))
    assert jobs.wait_for(due, within=5).attempts == 1

    for job in [through, *load]:
        jobs.wait_for(job, within=30)
    assert jobs.get(through).attempts == 1
    assert jobs.outcomes(through) == ["done"]
    for job in load:
        # Once in the database, whatever the outage did to a run.
        assert len(jobs.rows(job)) == 1
        assert jobs.outcomes(job)[-1] == "done"
        runs = jobs.runs(job)
        assert all(earlier.finished_at <= later.started_at for earlier, later in pairwise(runs))
    assert supervisor.is_alive()
    assert len([line for line in supervisor.logs() if line["event"] == "a worker is ready"]) <= 3 * (1 + 3)


@pytest.mark.timeout(120)
def test_a_run_is_killed_before_a_lease_that_cannot_be_kept_is_over(
    start_supervisor: Callable[..., Supervisor], own_server: Server, own_database: Database
) -> None:
    """Promise 4: with a lease of 6 s and no database the run is dead before its lease ends, and runs again afterwards."""
    jobs = Jobs(own_database)
    supervisor = start_supervisor(own_database.worker_url, concurrency=1)
    supervisor.wait_for_workers(1)
    job = jobs.enqueue("ticks_in_a_file", {"path": str(supervisor.folder / "ticks")})
    wait_until((supervisor.folder / "ticks").exists, what="the first tick")
    until = wait_until(lambda: jobs.get(job).locked_until, what="the lease")
    own_database.close()
    own_server.stop("fast")
    line = supervisor.wait_for_log("the lease can't be kept", within=8)
    assert line["job"] == job
    supervisor.wait_for_log(lambda line: line["event"] == "a worker has died" and line["killed_by_us"] == "lease")
    # By a clock that both share here: the last sign of life lies before the end of the last lease that was given.
    last_tick = float((supervisor.folder / "ticks").read_text().split()[-1])
    assert last_tick < until.timestamp() + 1.5
    supervisor.wait_for_workers(1)
    own_server.start()
    wait_until(lambda: jobs.get(job).attempts == 2, within=10, what="the second run")
    ticks = [float(tick) for tick in (supervisor.folder / "ticks").read_text().split()]
    assert max(ticks) - min(ticks) > 0
    assert jobs.outcomes(job) == ["lost"]
    own_database.execute("update fencepost.jobs set max_runtime = '1 s' where id = %s", [job])
    assert supervisor.is_alive()


def test_a_failure_is_booked_with_its_own_text_although_the_database_was_away(
    start_supervisor: Callable[..., Supervisor], own_server: Server, own_database: Database
) -> None:
    """C54: the job raises while no session can be had; its reason is on record once one can."""
    jobs = Jobs(own_database)
    supervisor = start_supervisor(own_database.worker_url, concurrency=1, lease="20s", heartbeat="5s")
    supervisor.wait_for_workers(1)
    flag = supervisor.folder / "go"
    job = jobs.enqueue("fails_when_told", {"path": str(flag)}, max_attempts=1)
    jobs.wait_for_mark(job)
    own_database.close()
    own_server.stop("fast")
    flag.touch()
    supervisor.wait_for_log(lambda line: line.get("verb") == "finish")
    own_server.start()
    assert "reason-123" in jobs.wait_for(job, "dead", within=12).last_error
    assert jobs.get(job).attempts == 1


def test_ended_sessions_cost_no_attempt(start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database) -> None:
    """C42, C44, C107: every session of ours ended, again and again; jobs run at attempt 1, and soon after their enqueue."""
    supervisor = start_supervisor(concurrency=2, poll="30s")
    supervisor.wait_for_workers(2)
    for _ in range(3):
        database.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'fencepost%%'"
            " and datname = current_database()"
        )
        wait_until(
            lambda: database.value(
                "select count(*) from pg_stat_activity where application_name like '%% listen'"
                " and datname = current_database() and query_start is not null"
            ),
            what="another listening session",
        )
        row = jobs.wait_for(jobs.enqueue("ok"))
        assert row.attempts == 1
        # The workers' sessions are ended, too: what wakes them comes soon, and then they connect.
        assert (row.started_at - row.created_at).total_seconds() < 5
    assert supervisor.is_alive()


def test_a_server_that_only_reads_is_left_and_no_attempt_is_burnt(
    start_supervisor: Callable[..., Supervisor], own_server: Server, own_database: Database
) -> None:
    """C45: some seconds read-only; sessions to it are given up, the running job is not hurt, the others are done soon after."""
    jobs = Jobs(own_database)
    supervisor = start_supervisor(own_database.worker_url, concurrency=2, lease="30s", heartbeat="5s")
    workers = supervisor.wait_for_workers(2)
    running = jobs.enqueue("sleeps_without_database", {"seconds": 6})
    jobs.wait_for_mark(running)
    sessions = "select pid from pg_stat_activity where application_name like 'fencepost %% duty'"
    before = own_database.value(sessions)
    own_database.execute("alter system set default_transaction_read_only = on")
    own_database.execute("select pg_reload_conf()")
    own_database.execute("set default_transaction_read_only = off")
    waiting = [jobs.enqueue("quick") for _ in range(3)]
    supervisor.wait_for_log(lambda line: "read-only" in str(line.get("error", "")), within=10)
    lines = len(supervisor.lines())
    wait_for_the_end_of(5)
    assert len(supervisor.lines()) - lines < 25
    own_database.execute("alter system reset default_transaction_read_only")
    own_database.execute("select pg_reload_conf()")
    for job in [*waiting, running]:
        assert jobs.wait_for(job, within=10).attempts == 1
    # The workers connect by themselves, and may have run all of them before the supervisor has.
    assert wait_until(lambda: own_database.execute(sessions), what="a session of the supervisor's")[0].pid != before
    assert supervisor.workers() == workers


def test_a_worker_that_is_killed_during_an_outage_is_replaced_and_booked_afterwards(
    start_supervisor: Callable[..., Supervisor], own_server: Server, own_database: Database
) -> None:
    """D3: slots are refilled meanwhile; the outcome is written once the database is back."""
    jobs = Jobs(own_database)
    supervisor = start_supervisor(own_database.worker_url, concurrency=1, lease="30s", heartbeat="5s")
    supervisor.wait_for_workers(1)
    job = jobs.enqueue("slow", {"seconds": 60}, max_attempts=1)
    jobs.wait_for_mark(job)
    worker = supervisor.wait_for_worker_of(job)
    own_database.close()
    own_server.stop("fast")
    os.kill(worker, 9)
    wait_until(lambda: supervisor.wait_for_workers(1) != [worker], within=3, what="another worker")
    own_server.start()
    assert "SIGKILL" in jobs.wait_for(job, "dead", within=6).last_error
    assert jobs.outcomes(job) == ["crashed"]


def test_an_outage_longer_than_the_lease_of_a_dead_worker_is_waited_out_quietly(
    start_supervisor: Callable[..., Supervisor], own_server: Server, own_database: Database
) -> None:
    """C108: its booking is tried again and again, without a line for each; then the run is on record all the same."""
    jobs = Jobs(own_database)
    supervisor = start_supervisor(own_database.worker_url, concurrency=1, lease="2s", heartbeat="0.4s", log_level="info")
    supervisor.wait_for_workers(1)
    job = jobs.enqueue("slow", {"seconds": 60}, max_attempts=1)
    jobs.wait_for_mark(job)
    worker = supervisor.wait_for_worker_of(job)
    own_database.close()
    own_server.stop("fast")
    os.kill(worker, 9)
    supervisor.wait_for_log("a worker has died")
    wait_for_the_end_of(5)
    assert len(supervisor.lines()) < 20
    own_server.start()
    jobs.wait_for(job, "dead", within=8)
    assert len(jobs.outcomes(job)) == 1
    assert not [line for line in supervisor.logs() if "can't be ended" in line["event"]]


@pytest.mark.timeout(90)
def test_a_supervisor_waits_for_the_database_and_then_for_the_schema(
    start_supervisor: Callable[..., Supervisor], own_server: Server
) -> None:
    """C52: started before both; the same process then does the work, having said what was missing."""
    database = Database.create(own_server)
    own_server.stop("fast")
    supervisor = start_supervisor(database.worker_url)
    supervisor.wait_for_log("the database is away")
    own_server.start()
    supervisor.wait_for_log(lambda line: "fencepost migrate" in str(line.get("reason", "")), within=10)
    assert len(supervisor.lines()) < 15
    database.migrate()
    # Between the migration and the grants: what refuses a start otherwise is waited for now.
    supervisor.wait_for_log(lambda line: "needs usage on schema" in str(line.get("reason", "")), within=10)
    database.add_test_tables()
    database.grant()
    jobs = Jobs(database)
    assert jobs.wait_for(jobs.enqueue("ok"), within=10).attempts == 1
    assert "Traceback" not in supervisor.tail(1000)
    database.close()
