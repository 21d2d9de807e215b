"""A job's transaction commits only if its run still holds the job, and nobody can take the job before it has."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from fencepost.job import Ended, Outcome
from fencepost.jobs.claim import Claim
from fencepost.jobs.transaction import Context, Held
from support.databases import Database
from support.jobs import Jobs
from support.transactions import begin, commit, finish_and_commit
from support.verbs import Verbs
from support.waiting import wait_until

CONTEXT = Context(tenant_setting="app.tenant", tenant="7", role="", time_left=60_000)
AT_ONCE = timedelta(microseconds=1)


def held(claimed: Claim) -> Held:
    return Held(claimed.id, claimed.fence, claimed.name)


def write(conn: Connection[Any], claimed: Claim) -> None:
    conn.execute("insert into test.rows (job, attempt) values (%s, %s)", [claimed.id, claimed.attempt])


def sqlstate_of(act: Callable[[], object]) -> str | None:
    with pytest.raises(psycopg.Error) as caught:
        act()
    return caught.value.sqlstate


def test_a_transaction_of_a_run_that_holds_its_job_commits(verbs: Verbs, jobs: Jobs) -> None:
    """The plain case."""
    jobs.enqueue("ok")
    claimed = verbs.must_claim()
    begin(verbs.conn, verbs.schema, held(claimed), CONTEXT)
    write(verbs.conn, claimed)
    commit(verbs.conn, verbs.schema, held(claimed))
    assert len(jobs.rows(claimed.id)) == 1


def test_a_late_write_is_void(verbs: Verbs, other_verbs: Verbs, jobs: Jobs) -> None:
    """C31: the lease is given away between the write and the commit. Everything of the transaction is gone."""
    jobs.enqueue("ok")
    claimed = verbs.must_claim()
    begin(verbs.conn, verbs.schema, held(claimed), CONTEXT)
    write(verbs.conn, claimed)
    other_verbs.finish(claimed, "lost")
    assert sqlstate_of(lambda: commit(verbs.conn, verbs.schema, held(claimed))) == "FP001"
    verbs.conn.execute("rollback")
    assert jobs.rows() == []


@pytest.mark.parametrize("again", [False, True], ids=["queued again", "claimed again"])
def test_a_dead_runs_commit_is_void_though_its_fence_is_still_the_jobs(
    verbs: Verbs, other_verbs: Verbs, jobs: Jobs, *, again: bool
) -> None:
    """Rule 2: a crash is booked, the job queued, the fence unchanged: the fence alone would still match."""
    job = jobs.enqueue("ok")
    claimed = verbs.must_claim()
    begin(verbs.conn, verbs.schema, held(claimed), CONTEXT)
    other_verbs.finish(claimed, "crashed")
    assert jobs[job].fence == claimed.fence
    if again:
        other_verbs.must_claim()
    assert sqlstate_of(lambda: commit(verbs.conn, verbs.schema, held(claimed))) == "FP001"


@pytest.mark.parametrize("wrong", [{"fence": 2}, {"fence": 0}, {"id": 2}], ids=str)
def test_hold_names_what_is_not_held(verbs: Verbs, jobs: Jobs, wrong: dict[str, int]) -> None:
    """Every part of a run's name counts."""
    jobs.enqueue("ok")
    claimed = verbs.must_claim()
    begin(verbs.conn, verbs.schema, held(claimed), CONTEXT)
    with pytest.raises(psycopg.Error, match=r"job \d is no longer held under fence \d") as caught:
        verbs.hold(claimed, **wrong)
    assert caught.value.sqlstate == "FP001"


def test_a_job_that_ended_its_transaction_itself_is_found_out(verbs: Verbs, jobs: Jobs) -> None:
    """Rule 4: psycopg would open another one silently, without the tenant."""
    jobs.enqueue("ok")
    claimed = verbs.must_claim()
    begin(verbs.conn, verbs.schema, held(claimed), CONTEXT)
    verbs.conn.execute("commit")
    verbs.conn.execute("begin")
    write(verbs.conn, claimed)
    assert sqlstate_of(lambda: commit(verbs.conn, verbs.schema, held(claimed))) == "FP002"
    verbs.conn.execute("rollback")
    assert jobs.rows() == []


def test_the_token_of_one_run_is_not_anothers(verbs: Verbs, jobs: Jobs) -> None:
    """A transaction that was begun for another claim can't be committed for this one."""
    for _ in range(2):
        jobs.enqueue("ok")
    first, second = verbs.must_claim(), verbs.must_claim()
    begin(verbs.conn, verbs.schema, held(first), CONTEXT)
    assert sqlstate_of(lambda: commit(verbs.conn, verbs.schema, held(second))) == "FP002"


def test_what_begin_sets_ends_with_the_transaction(verbs: Verbs, jobs: Jobs) -> None:
    """Promise 9: tenant, token, role and time limits are local."""
    query = """
        select current_setting('app.tenant', true), current_setting('fencepost_job.run', true),
            current_setting('statement_timeout'), current_setting('role'), current_setting('transaction_isolation')
    """
    jobs.enqueue("ok")
    claimed = verbs.must_claim()
    verbs.conn.execute("set default_transaction_isolation = serializable")
    begin(verbs.conn, verbs.schema, held(claimed), CONTEXT)
    assert verbs.conn.execute(query).fetchone() == ("7", claimed.name, "1min", "none", "read committed")
    commit(verbs.conn, verbs.schema, held(claimed))
    tenant, token, limit, role, _ = verbs.conn.execute(query).fetchone() or ()
    assert (tenant or None, token or None, limit, role) == (None, None, "0", "none")


def test_no_sweep_can_take_a_job_between_hold_and_commit(
    verbs: Verbs, other_verbs: Verbs, jobs: Jobs, database: Database
) -> None:
    """Rule 3: the row stays locked to the end of the transaction, though its lease is over."""
    job = jobs.enqueue("ok")
    claimed = verbs.must_claim(lease=AT_ONCE)
    begin(verbs.conn, verbs.schema, held(claimed), CONTEXT)
    write(verbs.conn, claimed)
    verbs.hold(claimed)
    expired = other_verbs.expired()
    assert [row.id for row in expired] == [job]
    assert other_verbs.sweep(expired) == []
    assert jobs[job].status == "running"
    verbs.conn.execute("commit")
    assert len(jobs.rows(job)) == 1
    assert [row.booked for row in other_verbs.sweep(expired)] == [True]


def test_a_cancel_that_waits_for_a_commit_comes_after_it(verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """Whoever takes the fence away does it before the transaction's commit or after it, never in the middle."""
    job = jobs.enqueue("ok")
    claimed = verbs.must_claim()
    begin(verbs.conn, verbs.schema, held(claimed), CONTEXT)
    write(verbs.conn, claimed)
    verbs.hold(claimed)

    def book() -> bool:
        with database.worker_conn() as conn:
            return Verbs(conn).finish(claimed, "lost")

    with ThreadPoolExecutor(1) as threads:
        booked = threads.submit(book)
        wait_until(
            lambda: database.value("select count(*) from pg_locks where not granted") > 0,
            what="the booking that waits for the row",
        )
        assert not booked.done()
        commit(verbs.conn, verbs.schema, held(claimed))
        assert booked.result(10) is True
    assert (len(jobs.rows(job)), jobs[job].status) == (1, "queued")


def test_a_deferred_trigger_runs_before_the_row_is_locked(verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """No code of the user's runs under the lock, where it would keep heartbeats and sweeps away."""
    database.execute(
        """
        create table test.seen (locked boolean);
        grant insert on test.seen to public;
        create function test.look() returns trigger language plpgsql as $$
        begin
            insert into test.seen
            select exists (select from fencepost.jobs where id = new.job and xmax = pg_current_xact_id()::xid);
            return null;
        end $$;
        create constraint trigger late after insert on test.rows deferrable initially deferred
            for each row execute function test.look();
        """
    )
    try:
        jobs.enqueue("ok")
        claimed = verbs.must_claim()
        begin(verbs.conn, verbs.schema, held(claimed), CONTEXT)
        write(verbs.conn, claimed)
        commit(verbs.conn, verbs.schema, held(claimed))
        assert [row.locked for row in database.execute("select locked from test.seen")] == [False]
    finally:
        database.execute("drop trigger late on test.rows; drop function test.look; drop table test.seen")


def test_a_jobs_writes_and_its_being_done_commit_together(verbs: Verbs, jobs: Jobs) -> None:
    """Promise 3."""
    job = jobs.enqueue("ok")
    claimed = verbs.must_claim()
    begin(verbs.conn, verbs.schema, held(claimed), CONTEXT)
    write(verbs.conn, claimed)
    finish_and_commit(verbs.conn, verbs.schema, held(claimed), Outcome(Ended.done, result='{"n": 1}', max_rss=5))
    assert (jobs[job].status, jobs[job].result, jobs.outcomes(job)) == ("done", {"n": 1}, ["done"])
    assert len(jobs.rows(job)) == 1


def test_neither_commits_where_the_job_is_no_longer_held(verbs: Verbs, other_verbs: Verbs, jobs: Jobs) -> None:
    """Promise 3, the other half."""
    job = jobs.enqueue("ok")
    claimed = verbs.must_claim()
    begin(verbs.conn, verbs.schema, held(claimed), CONTEXT)
    write(verbs.conn, claimed)
    other_verbs.finish(claimed, "lost")
    outcome = Outcome(Ended.done)
    assert sqlstate_of(lambda: finish_and_commit(verbs.conn, verbs.schema, held(claimed), outcome)) == "FP001"
    verbs.conn.execute("rollback")
    assert (jobs[job].status, jobs.outcomes(job), jobs.rows()) == ("queued", ["lost"], [])


def test_many_late_commits_against_one_sweep_never_let_a_void_one_through(verbs: Verbs, database: Database, jobs: Jobs) -> None:
    """However commit and booking interleave: a row is there if and only if it was committed before the booking."""
    together = threading.Barrier(2)

    def late(claimed: Claim) -> str | None:
        with database.worker_conn() as conn:
            begin(conn, "fencepost", held(claimed), CONTEXT)
            write(conn, claimed)
            together.wait()
            try:
                commit(conn, "fencepost", held(claimed))
            except psycopg.Error as error:
                return error.sqlstate
            return None

    with ThreadPoolExecutor(1) as threads:
        for _ in range(30):
            job = jobs.enqueue("ok")
            claimed = verbs.must_claim()
            committed = threads.submit(late, claimed)
            together.wait()
            assert verbs.finish(claimed, "lost", final=True)
            rows = jobs.rows(job)
            assert committed.result(10) == (None if rows else "FP001")
            if rows:
                assert rows[0].at < jobs.runs(job)[0].finished_at
            database.execute("delete from fencepost.jobs where id = %s", [job])


WALKS = "select seq_scan from pg_stat_xact_user_tables where relid = 'fencepost.jobs'::regclass"


def test_neither_the_fence_nor_a_finish_is_planned_as_a_walk_of_the_table(fresh_database: Database) -> None:
    """A session keeps their plans from job to job, and the table grows. While it is small a walk costs the server less."""
    Jobs(fresh_database).enqueue("ok")
    fresh_database.owner.execute("vacuum analyze fencepost.jobs")
    with fresh_database.worker_conn() as conn:
        verbs = Verbs(conn)
        claimed = verbs.must_claim()
        begin(conn, "fencepost", held(claimed), CONTEXT)
        walks = conn.execute(WALKS).fetchone()
        conn.execute("select fencepost.hold(%s, %s, %s)", [claimed.id, claimed.fence, claimed.name])
        assert verbs.finish(claimed)
        assert conn.execute(WALKS).fetchone() == walks
        conn.execute("rollback")
