"""Jobs whose supervisor is gone or late: taken over once, in time, and not overwritten by what wakes up."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

import pytest

from support import nursery
from support.databases import Database
from support.jobs import Jobs
from support.processes import WITHOUT_TIMERS, Supervisor
from support.waiting import wait_until

ENDS = """
    create table test.ends (job bigint, was text, became text);
    create function test.note_end() returns trigger language plpgsql security definer as $$
        begin
            insert into test.ends values (old.id, old.status, new.status);
            return null;
        end
    $$;
    create trigger note_ends after update on fencepost.jobs for each row
        when (old.status is distinct from new.status and 'done' in (old.status, new.status))
        execute function test.note_end();
"""
"""Writes down each time that a job comes to be done, or is it no longer."""


def test_a_job_whose_supervisor_dies_before_the_first_heartbeat_is_taken_over(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C36, C28, C39: as soon as others, though it may run for an hour, and though nothing tells of that supervisor any more."""
    settings = {"lease": "3s", "heartbeat": "0.8s", "max_runtime": "1h"}
    killed = start_supervisor(**settings)
    killed.wait_for_workers(2)
    job = jobs.enqueue("slow", {"seconds": 1.0})
    wait_until(lambda: jobs[job].status == "running", what="the claim")
    killed.signal(signal.SIGKILL)
    killed.kill_all()
    database.execute("delete from fencepost.supervisors")
    assert jobs[job].attempts == 1
    other = start_supervisor(**settings)
    jobs.wait_for_mark(job, attempt=2, within=3 + 1 + 4)
    assert jobs.wait_for(job).attempts == 2
    assert jobs.outcomes(job) == ["lost", "done"]
    told = json.loads(nursery.run(["status", "--json"], other.folder, other.environment).stdout)
    assert (told["jobs"]["running"], told["jobs"]["expired"]) == (0, 0)


@pytest.mark.timeout(120)
def test_a_job_that_is_done_stays_done_though_supervisors_are_late_again_and_again(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C30: each of two is frozen with its workers for longer than a lease, in turn: no job leaves done, and each is so once.

    They wake when their jobs have been swept, and when they are just about to be: then the sweeper's picture is the stale one.
    """
    database.execute(ENDS)
    settings = {"lease": "2s", "heartbeat": "0.4s", "max_attempts": 20, "backoff": "0s", "drain_timeout": "0.5s"}
    # With a timer of the kernel's none would wake again.
    supervisors = [start_supervisor(files=WITHOUT_TIMERS, **settings) for _ in range(2)]
    for supervisor in supervisors:
        supervisor.wait_for_workers(2)
    made: list[int] = []

    def works(supervisor: Supervisor) -> bool:
        # There is always one more to be had, whoever has taken the last.
        if not database.value("select count(*) from fencepost.jobs where status = 'queued'"):
            made.append(jobs.enqueue("slow", {"seconds": 1.2}))
        return any(supervisor.worker_of(job) for job in made[-4:])

    lost = "select count(*) from fencepost.job_runs where outcome = 'lost'"
    # Expired for long enough to have been seen by the other, who will sweep it in a moment.
    seen = "select count(*) from fencepost.jobs where locked_until < clock_timestamp() - interval '0.6 s'"
    for late, swept in zip(supervisors * 2, (True, True, False, False), strict=True):
        wait_until(lambda late=late: works(late), within=20, what="a job of the one that will be late")
        frozen = [late.pid, *late.workers()]
        before = database.value(lost)
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        wait_until(
            lambda swept=swept, before=before: database.value(lost) > before if swept else database.value(seen),
            what="the sweep of what it holds, or all but that",
        )
        for pid in reversed(frozen):
            os.kill(pid, signal.SIGCONT)
    for job in made:
        assert jobs.wait_for(job, within=30).fence >= 1
    ends = database.execute("select job, was, became from test.ends order by job")
    assert [(row.job, row.was, row.became) for row in ends] == [(job, "running", "done") for job in made]
    assert all(jobs.outcomes(job).count("done") == 1 for job in made)
    assert all(supervisor.is_alive() for supervisor in supervisors)
