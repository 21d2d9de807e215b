"""What is done or cancelled is deleted after RETENTION, by supervisors that work on beside it."""

from __future__ import annotations

from collections.abc import Callable

from support.databases import Database
from support.jobs import Jobs
from support.processes import Supervisor
from support.waiting import wait_until

OLD = """
    insert into fencepost.jobs (kind, status, attempts, max_attempts, fence, created_at, started_at, finished_at)
    select 'ok', 'done', 1, 1, 1, now() - interval '8 days', now() - interval '8 days', now() - interval '8 days'
    from generate_series(1, 5000)
"""
HANDLERS = "handlers_for_tests,handlers_of_statements"
LEFT = "select coalesce(array_agg(id order by id), '{}') from fencepost.jobs"
OFTEN = {"sitecustomize.py": "import fencepost.supervisor.prune\nfencepost.supervisor.prune.LOOK_EVERY = 0.1\n"}


def test_two_supervisors_delete_what_is_at_rest_for_good_and_nothing_else(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C102: with its runs. What is dead, waits or runs stays, and the work beside it goes on."""
    dead = jobs.enqueue("fails", max_attempts=1)
    later = jobs.enqueue("ok", after=3600)
    database.execute(OLD)
    supervisors = [start_supervisor(handlers=HANDLERS, concurrency=2, retention="1s") for _ in range(2)]
    go = supervisors[0].folder / "go"
    running = jobs.enqueue("waits_for_a_file", {"path": str(go)})
    cancelled = jobs.enqueue("ok", after=3600)
    database.execute("select fencepost.cancel(%s)", [cancelled])
    done = [jobs.enqueue("ok") for _ in range(20)]
    jobs.wait_for(running, "running")
    wait_until(lambda: database.value(LEFT) == [dead, later, running], within=20, what="the end of all that is finished")
    assert [jobs[job].status for job in (dead, later, running)] == ["dead", "queued", "running"]
    assert database.value("select array_agg(job_id) from fencepost.job_runs") == [dead]
    assert {mark.job for mark in jobs.marks()} >= set(done)
    go.touch()
    wait_until(lambda: database.value(LEFT) == [dead, later], what="the end of the last one")
    for supervisor in supervisors:
        assert not [line for line in supervisor.logs() if line["event"] == "finished jobs were not deleted"]


def test_with_a_retention_of_nothing_all_is_kept(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """Another supervisor, which is told for how long, shows that there was something to delete."""
    database.execute(OLD)
    keeps = start_supervisor(concurrency=1, retention="0", files=OFTEN)
    for _ in range(10):
        jobs.wait_for(jobs.enqueue("quick"))
    assert database.value("select count(*) from fencepost.jobs") == 5010
    start_supervisor(concurrency=1, retention="1h", files=OFTEN)
    wait_until(lambda: database.value("select count(*) from fencepost.jobs") == 10, within=20, what="the end of the old ones")
    assert keeps.is_alive()
