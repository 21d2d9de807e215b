"""A run ends at its max runtime, whatever it does."""

from __future__ import annotations

import json
from collections.abc import Callable

from support import nursery
from support.databases import Database
from support.jobs import Jobs
from support.processes import Supervisor, is_running
from support.waiting import wait_until


def test_a_job_that_hangs_in_c_is_gone_with_all_that_it_started(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C05, C07, C4: gone 2 s after its max runtime: the process, its statement on the server, its programs; the stack stays."""
    supervisor = start_supervisor()
    supervisor.wait_for_workers(2)
    job = jobs.enqueue("hangs_in_every_way", max_runtime=2, max_attempts=1)
    jobs.wait_for_mark(job, note="all started")
    programs = [int(mark.note.split()[1]) for mark in database.execute("select * from test.marks where note like 'program%%'")]
    assert len(programs) == 3
    assert database.value(
        "select count(*) from pg_stat_activity where query like '%%pg_sleep(120)%%' and pid <> pg_backend_pid()"
    )

    dead = jobs.wait_for(job, "dead", within=6)
    assert (dead.finished_at - dead.started_at).total_seconds() < 4
    (run,) = jobs.runs(job)
    assert run.outcome == "overran"
    assert "in hangs_in_every_way" in run.stack
    # Booked only after all of it was gone: nothing is waited for here.
    assert (
        database.value("select count(*) from pg_stat_activity where query like '%%pg_sleep(120)%%' and pid <> pg_backend_pid()")
        == 0
    )
    assert not [pid for pid in programs if is_running(pid)]
    assert supervisor.is_alive()


DO_NOT_WANT_TO_STOP = ["swallows_everything", "stops_itself", "blocks_signals", "spins_in_python", "dies_of_the_dump"]


def test_a_job_that_does_not_want_to_stop_is_killed(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """C1, C3, C13, C94: dead by max runtime + grace + 1 s, never a success; its slot works on."""
    supervisor = start_supervisor(concurrency=2, kill_grace="0.5s")
    enqueued = [(kind, jobs.enqueue(kind, max_runtime=1, max_attempts=1)) for kind in DO_NOT_WANT_TO_STOP]
    after = jobs.enqueue("ok")
    for kind, job in enqueued:
        dead = jobs.wait_for(job, "dead", within=15)
        assert jobs.outcomes(job) == ["overran"], kind
        assert (dead.finished_at - dead.started_at).total_seconds() < 1 + 0.5 + 1, kind
    assert jobs.wait_for(after).attempts == 1
    assert supervisor.is_alive()


def test_a_job_that_can_be_stopped_is_asked_and_its_worker_stays(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """Stopped is raised where it waits: in Python, in a coroutine, in a statement; the worker is the same afterwards."""
    supervisor = start_supervisor(concurrency=1)
    (worker,) = supervisor.wait_for_workers(1)
    for kind in ("slow", "sleeps_async", "hangs_on_the_server"):
        job = jobs.enqueue(kind, {"seconds": 60}, max_runtime=1, max_attempts=1)
        dead = jobs.wait_for(job, "dead")
        assert jobs.outcomes(job) == ["overran"], kind
        assert (dead.finished_at - dead.started_at).total_seconds() < 1.9, kind
    jobs.wait_for(jobs.enqueue("ok"))
    assert supervisor.workers() == [worker]


def test_a_handler_that_cleans_up_and_returns_when_asked_to_stop_is_done(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """A handler that returned is done, and the reason that it was given is max_runtime."""
    start_supervisor(concurrency=1)
    job = jobs.enqueue("returns_when_stopped", max_runtime=1)
    assert jobs.wait_for(job).result == {"reason": "max_runtime"}


def test_a_hanging_import_is_ended_at_the_boot_timeout(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """C10, D2: the stuck worker is killed and replaced, and never said to be ready; the job runs at attempt 1."""
    job = jobs.enqueue("ok")
    supervisor = start_supervisor(concurrency=1, boot_timeout="3s", handlers="hangs_at_first_import,handlers_for_tests")

    def phases() -> list[str]:
        told = json.loads(nursery.run(["status", "--json"], supervisor.folder, supervisor.environment).stdout)
        return [slot["phase"] for one in told["supervisors"] for slot in one["slots"]]

    assert wait_until(phases, within=2, what="the supervisor's row") == ["booting"]
    assert jobs[job].status == "queued"
    supervisor.wait_for_log("not ready in time", within=6)
    assert jobs.wait_for(job, within=6).attempts == 1
    wait_until(lambda: len(supervisor.workers()) == 1, what="one worker")
