"""The supervisor's poll, and the end of sessions."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import Connection

from support.databases import Database
from support.jobs import Jobs
from support.verbs import Verbs, lane
from support.waiting import wait_until


def test_due_jobs_are_counted_no_further_than_asked(verbs: Verbs, jobs: Jobs) -> None:
    """A supervisor wakes as many workers as there is work, and need not know of a million."""
    for priority in (0, 0, 1, 2, 2):
        jobs.enqueue("ok", priority=priority)
    assert [verbs.waiting(idle=idle).due for idle in (0, 1, 3, 5, 9)] == [0, 1, 3, 5, 5]


def test_only_what_this_supervisor_could_run_is_counted(verbs: Verbs, jobs: Jobs) -> None:
    """Its queues, its kinds, due now and not running."""
    jobs.enqueue("ok")
    jobs.enqueue("other")
    jobs.enqueue("ok", queue="mail")
    jobs.enqueue("ok", after=3600)
    assert verbs.waiting(idle=9).due == 1
    assert verbs.waiting("mail", idle=9).due == 1
    assert verbs.waiting("*", idle=9).due == 2
    assert verbs.waiting("*", idle=9, kinds=("ok", "other")).due == 3
    assert verbs.waiting("nothing", idle=9).due == 0
    assert verbs.waiting(idle=9, kinds=()).due == 0
    verbs.must_claim(lanes=[lane()])
    assert verbs.waiting(idle=9).due == 0


def test_the_poll_says_when_the_next_job_is_due(verbs: Verbs, jobs: Jobs) -> None:
    """So that a job that was scheduled starts on time, and not at the next poll after it."""
    assert verbs.waiting().next_due_in is None
    jobs.enqueue("ok")
    assert verbs.waiting().next_due_in is None
    jobs.enqueue("ok", after=100, priority=5)
    jobs.enqueue("ok", after=50, priority=7)
    jobs.enqueue("ok", after=10, queue="mail")
    assert 40 < verbs.waiting().next_due_in <= 50
    assert 0 < verbs.waiting("*").next_due_in <= 10


@pytest.mark.parametrize("off", [("hashjoin", "nestloop", "material"), ("indexscan", "bitmapscan")], ids=str)
def test_the_poll_answers_the_same_under_other_plans(verbs: Verbs, jobs: Jobs, off: tuple[str, ...]) -> None:
    """What is counted does not hang on the planner."""
    for priority in range(30):
        jobs.enqueue("ok", priority=priority)
    for name in off:
        verbs.conn.execute(f"set enable_{name} = off")
    assert (verbs.waiting(idle=7).due, verbs.waiting(idle=99).due) == (7, 30)


def test_the_sessions_of_a_dead_worker_are_ended(verbs: Verbs, connect: Callable[..., Connection], database: Database) -> None:
    """Its statement, which would sleep on for two minutes, too; nobody else's, and not the one that asks."""
    dead, other = "fencepost w1", "fencepost w11"
    sleeping = connect(application_name=dead)
    idle = connect(application_name=dead)
    bystander = connect(application_name=other)
    verbs.conn.execute("set application_name = 'fencepost w1'")

    def sleep() -> None:
        with pytest.raises(psycopg.errors.AdminShutdown):
            sleeping.execute("select pg_sleep(120)")

    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(sleep)
        wait_until(
            lambda: database.value("select count(*) from pg_stat_activity where wait_event = 'PgSleep'") == 1,
            what="the sleep",
        )
        assert verbs.end_sessions(dead) == 2
        ended.result(10)
    wait_until(lambda: verbs.end_sessions(dead) == 0, what="the end of both sessions")
    with pytest.raises(psycopg.OperationalError):
        idle.execute("select 1")
    assert bystander.execute("select 1").fetchone() == (1,)


def test_a_session_that_the_worker_may_not_end_does_not_save_the_others(
    verbs: Verbs, connect: Callable[..., Connection], database: Database
) -> None:
    """A job's own connection bears the worker's name as well, and may be another role's, even a superuser's."""
    name = f"fencepost {os.getpid()}"
    mine = connect(application_name=name)
    with database.conn(application_name=name) as foreign:
        verbs.end_sessions(name)
        wait_until(lambda: verbs.end_sessions(name) <= 1, what="the end of our own session")
        with pytest.raises(psycopg.OperationalError):
            mine.execute("select 1")
        assert foreign.execute("select 1").fetchone() == (1,)
