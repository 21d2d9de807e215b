"""A sweep takes what was seen expired and still stands unchanged, and nothing else."""

from __future__ import annotations

from datetime import timedelta

import pytest

from support.databases import Database
from support.jobs import Jobs
from support.verbs import ASKS_NOTHING, Verbs, pages_of

AT_ONCE = timedelta(microseconds=1)


def test_an_expired_lease_is_swept_back_into_the_queue(verbs: Verbs, jobs: Jobs) -> None:
    """The attempt stays counted, and the job is due at once."""
    job = jobs.enqueue("ok")
    claimed = verbs.must_claim(lease=AT_ONCE)
    expired = verbs.expired()
    assert [(row.id, row.fence, row.name) for row in expired] == [(job, claimed.fence, claimed.name)]
    assert [(row.id, row.fence, row.name, row.booked) for row in verbs.sweep(expired)] == [(job, 1, claimed.name, True)]
    assert (jobs[job].status, jobs[job].attempts, jobs[job].last_error) == ("queued", 1, "its lease ran out")
    assert (jobs.outcomes(job), jobs.runs(job)[0].error) == (["lost"], {"message": "its lease ran out"})
    assert verbs.must_claim().attempt == 2


def test_a_job_that_is_lost_at_its_last_attempt_is_dead(verbs: Verbs, jobs: Jobs) -> None:
    """Promise 7: it comes to rest."""
    job = jobs.enqueue("ok", max_attempts=1)
    verbs.must_claim(lease=AT_ONCE)
    verbs.sweep(verbs.expired())
    assert jobs[job].status == "dead"


def test_a_living_lease_is_not_seen(verbs: Verbs, jobs: Jobs) -> None:
    """Nor are jobs that do not run; and there is always a mark to go on from."""
    assert verbs.leases().mark is not None
    for _ in range(2):
        jobs.enqueue("ok")
    claimed = verbs.must_claim()
    assert [lease.name for lease in verbs.leases().leases] == [claimed.name]
    assert verbs.expired() == []


def test_what_has_changed_since_it_was_seen_is_left_alone(verbs: Verbs, jobs: Jobs) -> None:
    """C30: a stale picture must not overwrite a job that was finished, prolonged or claimed again meanwhile."""
    ids = [jobs.enqueue("ok") for _ in range(4)]
    done, beaten, again, stays = (verbs.must_claim(lease=AT_ONCE) for _ in ids)
    expired = verbs.expired()
    assert len(expired) == 4
    verbs.finish(done, "done")
    verbs.heartbeat(beaten)
    verbs.finish(again, "lost")
    verbs.must_claim(lease=AT_ONCE)
    rows = {id_: jobs[id_] for id_ in ids[:3]}
    assert [row.id for row in verbs.sweep(expired)] == [stays.id]
    assert {id_: jobs[id_] for id_ in ids[:3]} == rows


def test_a_lease_that_was_prolonged_to_run_out_again_is_another(verbs: Verbs, jobs: Jobs) -> None:
    """Rule 14: the holder lives, so the time since it was first seen does not count."""
    jobs.enqueue("ok")
    claimed = verbs.must_claim(lease=AT_ONCE)
    expired = verbs.expired()
    verbs.heartbeat(claimed, lease=AT_ONCE)
    assert verbs.sweep(expired) == []
    assert len(verbs.sweep(verbs.expired())) == 1


def test_a_clock_that_went_back_sweeps_nothing(verbs: Verbs, jobs: Jobs) -> None:
    """A row that was seen expired by another clock is not expired by this one."""
    jobs.enqueue("ok")
    verbs.must_claim()
    (row,) = verbs.conn.execute("select id, fence, locked_by, locked_until from fencepost.jobs").fetchall()

    class Seen:
        id, fence, name, locked_until = row

    assert verbs.sweep([Seen]) == []


def test_two_sweepers_book_a_loss_once(verbs: Verbs, other_verbs: Verbs, jobs: Jobs) -> None:
    """Every supervisor sweeps."""
    job = jobs.enqueue("ok")
    verbs.must_claim(lease=AT_ONCE)
    mine = verbs.expired()
    theirs = other_verbs.expired()
    assert len(verbs.sweep(mine)) == 1
    assert other_verbs.sweep(theirs) == []
    assert jobs.outcomes(job) == ["lost"]


def test_a_locked_row_does_not_hold_up_the_others(verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """C33: one that can't be put back now is left for the next pass."""
    locked, free = jobs.enqueue("ok"), jobs.enqueue("ok")
    for _ in range(2):
        verbs.must_claim(lease=AT_ONCE)
    expired = verbs.expired()
    verbs.conn.execute("set lock_timeout = '1ms'")
    with database.conn(autocommit=False) as conn:
        conn.execute("select from fencepost.jobs where id = %s for update", [locked])
        assert [row.id for row in verbs.sweep(expired)] == [free]
    assert [row.id for row in verbs.sweep(expired)] == [locked]


def test_a_lost_job_with_a_unique_key_comes_back(verbs: Verbs, jobs: Jobs) -> None:
    """C33: the key was never free for a twin while the job ran, so the way back can't fail on it."""
    job = jobs.enqueue("ok", unique_key="only one")
    verbs.must_claim(lease=AT_ONCE)
    assert jobs.enqueue("ok", unique_key="only one") == job
    assert len(verbs.sweep(verbs.expired())) == 1
    assert jobs[job].status == "queued"


def test_runs_before_the_mark_are_read_only_where_they_are_known(verbs: Verbs, jobs: Jobs) -> None:
    """Rule 22: a pass does not walk what an earlier one has seen."""
    old, ended, new = (jobs.enqueue("ok") for _ in range(3))
    verbs.must_claim()
    verbs.finish(verbs.must_claim(), "done")
    mark = verbs.leases().mark
    verbs.must_claim()
    assert [lease.id for lease in verbs.leases().leases] == [old, new]
    assert [lease.id for lease in verbs.leases(mark).leases] == [new]
    assert [lease.id for lease in verbs.leases(mark, [old, ended]).leases] == [new, old]


def test_a_run_is_read_when_it_has_gone_on_for_a_while(verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """By then its claim is committed, whenever that was sent; the mark lies as far back, so that none is passed over."""
    young, old = jobs.enqueue("ok"), jobs.enqueue("ok")
    for _ in range(2):
        verbs.must_claim()
    database.execute("update fencepost.jobs set started_at = now() - interval '1 minute' where id = %s", [old])
    age = timedelta(seconds=30)
    before = database.value("select now() - interval '2 minutes'")
    read = verbs.leases(before, age=age)
    assert [lease.id for lease in read.leases] == [old]
    assert read.mark == read.at - age
    assert [lease.id for lease in verbs.leases(read.mark, age=age).leases] == []
    assert [lease.id for lease in verbs.leases(read.mark).leases] == [young]


def test_a_look_costs_the_same_behind_dead_entries(database: Database) -> None:
    """Rule 22: a transaction is open elsewhere, and the entries of all that has run since then stay in the index."""
    run = "status = 'running', attempts = 1, max_attempts = 9, fence = 1, locked_by = 'w:' || id, locked_until = now()"
    end = "status = 'queued', locked_by = null, locked_until = null"
    database.execute("insert into fencepost.jobs (kind) select 'ok' from generate_series(1, 10100)")
    database.execute(f"update fencepost.jobs set {run}, started_at = now() - interval '1 hour' where id > 10000")
    database.execute("vacuum analyze fencepost.jobs")
    known = [row.id for row in database.execute("select id from fencepost.jobs where status = 'running'")]
    with database.conn(autocommit=False) as old:
        old.execute("set transaction isolation level repeatable read")
        old.execute("select count(*) from fencepost.jobs")
        at_first = pages_of_a_look(database, known)
        for _ in range(5):
            database.execute(f"update fencepost.jobs set {run}, started_at = clock_timestamp() where id <= 10000")
            database.execute(f"update fencepost.jobs set {end} where id <= 10000")
        assert pages_of_a_look(database, known) <= at_first + 20


def pages_of_a_look(database: Database, known: list[int]) -> int:
    """Return how many pages are touched by a look at what is known and at what has begun by now."""
    mark = database.value("select clock_timestamp()")
    return pages_of(database, "look", {**ASKS_NOTHING, "leases": True, "mark": mark, "ids": known})


@pytest.mark.parametrize("off", [("indexscan", "bitmapscan"), ("seqscan", "bitmapscan"), ("nestloop", "seqscan")], ids=str)
def test_a_look_reads_the_same_under_other_plans(verbs: Verbs, jobs: Jobs, off: tuple[str, ...]) -> None:
    """What is read does not hang on the planner."""
    ids = [jobs.enqueue("ok") for _ in range(20)]
    mark = verbs.leases().mark
    for _ in ids[:15]:
        verbs.must_claim()
    for name in off:
        verbs.conn.execute(f"set enable_{name} = off")
    assert sorted(lease.id for lease in verbs.leases().leases) == ids[:15]
    assert sorted(lease.id for lease in verbs.leases(mark).leases) == ids[:15]
    assert sorted(lease.id for lease in verbs.leases(verbs.leases().mark, ids).leases) == ids[:15]


@pytest.mark.parametrize("count", [0, 1, 500])
def test_a_sweep_books_all_that_it_is_given(verbs: Verbs, database: Database, count: int) -> None:
    """In one statement, nothing given included, and in its time: what books one must not be planned and compiled for each."""
    database.execute(
        """insert into fencepost.jobs (kind, status, attempts, max_attempts, fence, locked_by, locked_until, started_at)
           select 'ok', 'running', 1, 3, 1, 'gone:' || n, now() - interval '1 minute', now()
           from generate_series(1, %s) n""",
        [count],
    )
    verbs.conn.execute("set statement_timeout = '3s'")
    assert len(verbs.sweep(verbs.expired())) == count
    assert database.value("select count(*) from fencepost.jobs where status = 'queued'") == count
    assert database.value("select count(*) from fencepost.job_runs where outcome = 'lost'") == count
