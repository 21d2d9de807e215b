"""A sweep takes what was seen expired and still stands unchanged, and nothing else."""

from __future__ import annotations

from datetime import timedelta

import pytest

from support.databases import Database
from support.jobs import Jobs
from support.verbs import START, Verbs

AT_ONCE = timedelta(microseconds=1)


def test_an_expired_lease_is_swept_back_into_the_queue(verbs: Verbs, jobs: Jobs) -> None:
    """The attempt stays counted, and the job is due at once."""
    job = jobs.enqueue("ok")
    claimed = verbs.must_claim(lease=AT_ONCE)
    _, expired = verbs.expired()
    assert [(row.id, row.fence, row.name) for row in expired] == [(job, claimed.fence, claimed.name)]
    assert [(row.id, row.fence, row.name, row.booked) for row in verbs.sweep(expired)] == [(job, 1, claimed.name, True)]
    assert (jobs[job].status, jobs[job].attempts, jobs[job].last_error) == ("queued", 1, "its lease ran out")
    assert (jobs.outcomes(job), jobs.runs(job)[0].error) == (["lost"], {"message": "its lease ran out"})
    assert verbs.must_claim().attempt == 2


def test_a_job_that_is_lost_at_its_last_attempt_is_dead(verbs: Verbs, jobs: Jobs) -> None:
    """Promise 7: it comes to rest."""
    job = jobs.enqueue("ok", max_attempts=1)
    verbs.must_claim(lease=AT_ONCE)
    verbs.sweep(verbs.expired()[1])
    assert jobs[job].status == "dead"


def test_a_living_lease_is_not_seen(verbs: Verbs, jobs: Jobs) -> None:
    """Nor are jobs that do not run; and there is always a mark to go on from."""
    for _ in range(2):
        jobs.enqueue("ok")
    verbs.must_claim()
    mark, expired = verbs.expired()
    assert expired == []
    assert mark > START


def test_what_has_changed_since_it_was_seen_is_left_alone(verbs: Verbs, jobs: Jobs) -> None:
    """C30: a stale picture must not overwrite a job that was finished, prolonged or claimed again meanwhile."""
    ids = [jobs.enqueue("ok") for _ in range(4)]
    done, beaten, again, stays = (verbs.must_claim(lease=AT_ONCE) for _ in ids)
    _, expired = verbs.expired()
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
    _, expired = verbs.expired()
    verbs.heartbeat(claimed, lease=AT_ONCE)
    assert verbs.sweep(expired) == []
    assert len(verbs.sweep(verbs.expired()[1])) == 1


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
    _, mine = verbs.expired()
    _, theirs = other_verbs.expired()
    assert len(verbs.sweep(mine)) == 1
    assert other_verbs.sweep(theirs) == []
    assert jobs.outcomes(job) == ["lost"]


def test_a_locked_row_does_not_hold_up_the_others(verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """C33: one that can't be put back now is left for the next pass."""
    locked, free = jobs.enqueue("ok"), jobs.enqueue("ok")
    for _ in range(2):
        verbs.must_claim(lease=AT_ONCE)
    _, expired = verbs.expired()
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
    assert len(verbs.sweep(verbs.expired()[1])) == 1
    assert jobs[job].status == "queued"


def test_leases_behind_the_mark_are_not_looked_at_again(verbs: Verbs, jobs: Jobs) -> None:
    """Rule 22: a pass does not walk what an earlier one has seen."""
    jobs.enqueue("ok")
    verbs.must_claim(lease=AT_ONCE)
    mark, expired = verbs.expired()
    assert len(expired) == 1
    later, again = verbs.expired(mark)
    assert again == []
    assert later > mark
    jobs.enqueue("ok")
    verbs.must_claim(lease=AT_ONCE)
    assert len(verbs.expired(later)[1]) == 1


def test_following_the_marks_leaves_no_expired_lease_behind(verbs: Verbs, database: Database) -> None:
    """A thousand workers die at once, or three: whoever goes on from the mark each time has seen them all."""
    database.execute(
        """insert into fencepost.jobs (kind, status, attempts, max_attempts, fence, locked_by, locked_until, started_at)
           select 'ok', 'running', 1, 3, 1, 'gone:' || n, now() - interval '1 minute', now()
           from generate_series(1, 2500) n"""
    )
    seen: set[int] = set()
    mark = START
    for _ in range(10):
        mark, expired = verbs.expired(mark)
        seen |= {row.id for row in expired}
    assert len(seen) == 2500


@pytest.mark.parametrize("count", [0, 1, 500])
def test_a_sweep_books_all_that_it_is_given(verbs: Verbs, database: Database, count: int) -> None:
    """In one statement, nothing given included."""
    database.execute(
        """insert into fencepost.jobs (kind, status, attempts, max_attempts, fence, locked_by, locked_until, started_at)
           select 'ok', 'running', 1, 3, 1, 'gone:' || n, now() - interval '1 minute', now()
           from generate_series(1, %s) n""",
        [count],
    )
    assert len(verbs.sweep(verbs.expired()[1])) == count
    assert database.value("select count(*) from fencepost.jobs where status = 'queued'") == count
    assert database.value("select count(*) from fencepost.job_runs where outcome = 'lost'") == count
