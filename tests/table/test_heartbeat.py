"""A heartbeat prolongs what is held, in one statement, and tells the truth about each run."""

from __future__ import annotations

from datetime import timedelta

import pytest

from support.databases import Database
from support.jobs import Jobs
from support.verbs import Verbs, steps_of

LONG = timedelta(hours=1)


def test_a_heartbeat_prolongs_the_lease_of_its_holder(verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """From the database's clock on, whatever was left."""
    job = jobs.enqueue("ok")
    claimed = verbs.must_claim()
    before = database.value("select clock_timestamp()")
    assert verbs.heartbeat(claimed, lease=LONG) == {claimed.name: "renewed"}
    assert before + LONG <= jobs[job].locked_until <= before + LONG + timedelta(seconds=10)


def test_a_heartbeat_saves_a_lease_that_has_run_out_but_was_not_swept(verbs: Verbs, jobs: Jobs) -> None:
    """The fence is still the holder's: nobody took the job over."""
    jobs.enqueue("ok")
    claimed = verbs.must_claim(lease=timedelta(microseconds=1))
    expired = verbs.expired()
    assert len(expired) == 1
    assert verbs.heartbeat(claimed) == {claimed.name: "renewed"}
    assert verbs.sweep(expired) == []


def test_a_run_that_lost_its_job_is_told_so(verbs: Verbs, jobs: Jobs) -> None:
    """Whether it is queued, claimed by another, at rest or gone."""
    for _ in range(4):
        jobs.enqueue("ok", max_attempts=2)
    queued, again, done, gone = (verbs.must_claim() for _ in range(4))
    verbs.finish(again, "lost")
    other = verbs.must_claim()
    assert other.id == again.id
    verbs.finish(queued, "lost")
    verbs.finish(done, "done")
    verbs.finish(gone, "done")
    rows = {one.id: jobs[one.id] for one in (queued, again, done, gone)}
    answers = verbs.heartbeat(queued, again, done, gone)
    assert set(answers.values()) == {"lost"}
    assert {one: jobs[one] for one in rows} == rows


def test_a_run_whose_row_is_gone_is_lost(verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """Rule 18."""
    job = jobs.enqueue("ok")
    claimed = verbs.must_claim()
    database.execute("delete from fencepost.jobs where id = %s", [job])
    assert verbs.heartbeat(claimed) == {claimed.name: "lost"}


def test_a_locked_row_is_neither_waited_for_nor_called_lost(verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """Rule 11: waiting for one row would cost all the others their leases."""
    locked_job = jobs.enqueue("ok")
    jobs.enqueue("ok")
    locked, free = verbs.must_claim(), verbs.must_claim()
    assert locked.id == locked_job
    before = jobs[locked_job].locked_until
    verbs.conn.execute("set lock_timeout = '1ms'")
    with database.conn(autocommit=False) as conn:
        conn.execute("select from fencepost.jobs where id = %s for update", [locked_job])
        assert verbs.heartbeat(locked, free, lease=LONG) == {locked.name: "locked", free.name: "renewed"}
    assert jobs[locked_job].locked_until == before
    assert verbs.heartbeat(locked) == {locked.name: "renewed"}


def test_a_foreign_keys_lock_does_not_look_like_somebodys(verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """Rule 11: a user's row that refers to the job, in a long transaction, must not cost the job its lease."""
    database.execute("create table test.refers (job bigint references fencepost.jobs (id))")
    try:
        job = jobs.enqueue("ok")
        claimed = verbs.must_claim()
        with database.conn(autocommit=False) as conn:
            conn.execute("insert into test.refers values (%s)", [job])
            assert verbs.heartbeat(claimed) == {claimed.name: "renewed"}
    finally:
        database.execute("drop table test.refers")


def test_an_old_and_a_new_run_of_one_job_are_told_apart(verbs: Verbs, jobs: Jobs) -> None:
    """One supervisor may have both: it was late, the job was swept, and its other worker claimed it."""
    jobs.enqueue("ok")
    old = verbs.must_claim()
    verbs.finish(old, "lost")
    new = verbs.must_claim()
    assert verbs.heartbeat(old, new) == {old.name: "lost", new.name: "renewed"}
    assert verbs.heartbeat(new, old) == {old.name: "lost", new.name: "renewed"}


def test_progress_is_written_with_the_beat_and_kept_without(verbs: Verbs, jobs: Jobs) -> None:
    """It costs no statement of its own."""
    job = jobs.enqueue("ok")
    claimed = verbs.must_claim()
    verbs.heartbeat(claimed, progress='{"done": 3, "total": 10}')
    assert jobs[job].progress == {"done": 3, "total": 10}
    verbs.heartbeat(claimed)
    assert jobs[job].progress == {"done": 3, "total": 10}


def test_a_cancel_that_was_asked_for_comes_with_the_answer(verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """So a supervisor need not look for it."""
    for _ in range(2):
        jobs.enqueue("ok")
    asked, other = verbs.must_claim(), verbs.must_claim()
    database.execute("update fencepost.jobs set cancel_requested_at = now() where id = %s", [asked.id])
    rows = verbs.heartbeat_rows(asked, other)
    assert {row.name: row.cancel_requested for row in rows} == {asked.name: True, other.name: False}


def test_a_heartbeat_for_nobody_answers_nothing(verbs: Verbs) -> None:
    """No busy worker, no answer, no error."""
    assert verbs.heartbeat() == {}


def test_a_heartbeat_of_many_is_one_statement_that_answers_for_each(verbs: Verbs, database: Database) -> None:
    """A thousand workers are the most that a supervisor may have."""
    database.execute("insert into fencepost.jobs (kind) select 'ok' from generate_series(1, 300)")
    claims = [verbs.must_claim() for _ in range(300)]
    for claimed in claims[::3]:
        verbs.finish(claimed, "lost")
    answers = verbs.heartbeat(*claims)
    assert [answers[one.name] for one in claims] == ["lost", "renewed", "renewed"] * 100


def test_a_thousand_beats_are_hot_and_the_table_does_not_grow(fresh_database: Database) -> None:
    """Of a thousand runs that lie beside each other: no index has what a beat changes, and each page has room for all of it."""
    database = fresh_database
    database.execute("alter table fencepost.jobs set (autovacuum_enabled = false)")
    rows = database.execute(
        """insert into fencepost.jobs (kind, status, attempts, max_attempts, fence, locked_by, locked_until, started_at)
           select 'ok', 'running', 1, 3, 1, 'w0123456789abcdef:' || n, now(), now() from generate_series(1, 1000) n
           returning id, fence, locked_by as name"""
    )
    sizes = "select pg_relation_size('fencepost.jobs'), pg_indexes_size('fencepost.jobs')"
    before = database.execute(sizes)
    with database.conn() as conn:
        beats = Verbs(conn)
        for _ in range(100):
            assert set(beats.heartbeat(*rows).values()) == {"renewed"}
    # An entry in any index for a tenth of these beats would show in its size.
    assert database.execute(sizes) == before


PLANNERS = [(), ("enable_hashjoin = off", "enable_mergejoin = off"), ("enable_nestloop = off",), ("enable_indexscan = off",)]


@pytest.mark.parametrize("planner", PLANNERS, ids=str)
def test_a_heartbeat_of_many_takes_a_step_for_each_whatever_the_planner_believes(
    database: Database, planner: tuple[str, ...]
) -> None:
    """Planned once, and by what the table was like when nothing ran: joined, a thousand were compared with a thousand."""
    count = 500
    database.execute("insert into fencepost.jobs (kind) select 'ok' from generate_series(1, %s)", [count])
    database.execute("vacuum analyze fencepost.jobs")
    rows = database.execute(
        """update fencepost.jobs set status = 'running', attempts = 1, max_attempts = 1, fence = 1, locked_by = 'w:' || id,
           locked_until = now() + interval '1 h', started_at = now() returning id, fence, locked_by as name"""
    )
    runs = {"ids": [row.id for row in rows], "fences": [row.fence for row in rows], "names": [row.name for row in rows]}
    beat = {**runs, "progress": [None] * count, "lease": LONG}
    assert count < steps_of(database, "heartbeat", beat, "enable_seqscan = off", *planner) < 20 * count
    database.execute("update fencepost.jobs set locked_until = now() - interval '1 s'")
    expired_at = database.value("select min(locked_until) from fencepost.jobs")
    swept = {**runs, "expired_at": [expired_at] * count, "error": "{}", "summary": "gone"}
    assert count < steps_of(database, "sweep", swept, "enable_seqscan = off", *planner) < 20 * count
