"""A finish writes a run's outcome under its fence, and where that leaves the job: the design's diagram, row by row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from psycopg import Connection
from psycopg.rows import namedtuple_row

from fencepost.job import Ended
from support.databases import Database
from support.jobs import Jobs
from support.verbs import Verbs

WAIT = timedelta(seconds=90)


@dataclass
class Case:
    """A run that ends, and what becomes of its job: attempts are those that stay counted."""

    ended: str
    status: str
    attempts: int = 1
    interruptions: int = 0
    waits: bool = False
    before: dict[str, Any] = field(default_factory=dict)
    outcome: dict[str, Any] = field(default_factory=dict)


CANCELLED = {"cancel_requested_at": "2026-01-01"}
LAST = {"max_attempts": 1}

CASES = {
    "done": Case("done", "done"),
    "done though a cancel was asked for": Case("done", "done", before=CANCELLED),
    "done at the last attempt": Case("done", "done", before=LAST),
    "failed": Case("failed", "queued", waits=True),
    "failed with none left": Case("failed", "dead", before=LAST),
    "failed and given up": Case("failed", "dead", outcome={"final": True}),
    "failed and cancelled": Case("failed", "cancelled", before=CANCELLED),
    "crashed": Case("crashed", "queued", waits=True),
    "crashed with none left": Case("crashed", "dead", before=LAST),
    "crashed and cancelled": Case("crashed", "cancelled", before=CANCELLED),
    "overran": Case("overran", "queued", waits=True),
    "overran with none left": Case("overran", "dead", before=LAST),
    "overran and cancelled": Case("overran", "cancelled", before=CANCELLED),
    "lost is queued at once": Case("lost", "queued"),
    "lost with none left": Case("lost", "dead", before=LAST),
    "lost and cancelled": Case("lost", "cancelled", before=CANCELLED),
    "interrupted is not counted": Case("interrupted", "queued", attempts=0, interruptions=1),
    "interrupted at the last attempt": Case("interrupted", "queued", attempts=0, interruptions=1, before=LAST),
    "interrupted and cancelled": Case("interrupted", "cancelled", attempts=0, interruptions=1, before=CANCELLED),
    "interrupted the 20th time": Case(
        "interrupted", "queued", attempts=0, interruptions=20, before={"interruptions": 19, "fence": 21}
    ),
    "interrupted the 21st time is counted": Case(
        "interrupted", "queued", attempts=1, interruptions=21, before={"interruptions": 20, "fence": 21}
    ),
    "interrupted the 21st time with none left": Case(
        "interrupted", "dead", attempts=1, interruptions=21, before={"interruptions": 20, "fence": 21, **LAST}
    ),
    "snoozed": Case("snoozed", "queued", attempts=0, waits=True),
    "snoozed at the last attempt": Case("snoozed", "queued", attempts=0, waits=True, before=LAST),
    "snoozed and cancelled": Case("snoozed", "cancelled", attempts=0, before=CANCELLED),
    "cancelled": Case("cancelled", "cancelled"),
    "cancelled as was asked for": Case("cancelled", "cancelled", before=CANCELLED),
    "cancelled at the last attempt": Case("cancelled", "cancelled", before=LAST),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_where_each_outcome_leaves_the_job(verbs: Verbs, jobs: Jobs, database: Database, case: Case) -> None:
    """Every arrow of the state diagram out of running, with its attempts, its wait and its row of job_runs."""
    job = jobs.enqueue("ok")
    claimed = verbs.must_claim()
    if case.before:
        columns = ", ".join(f"{column} = %({column})s" for column in case.before)
        database.execute(f"update fencepost.jobs set {columns} where id = %(id)s", {**case.before, "id": job})
    claimed_row = jobs[job]
    before = database.value("select clock_timestamp()")
    assert verbs.finish(claimed, case.ended, wait=WAIT, fence=claimed_row.fence, summary="so it ended", **case.outcome)
    row = jobs[job]

    assert (row.status, row.attempts, row.interruptions) == (case.status, case.attempts, case.interruptions)
    assert (row.locked_by, row.locked_until) == (None, None)
    assert row.fence == claimed_row.fence
    assert (row.finished_at is None) == (case.status == "queued")
    assert row.last_error == "so it ended"
    if case.waits:
        assert before + WAIT <= row.run_at <= before + WAIT + timedelta(seconds=10)
    else:
        assert row.run_at == claimed_row.run_at

    (run,) = jobs.runs(job)
    assert (run.fence, run.attempt, run.worker, run.outcome) == (claimed_row.fence, 1, claimed.name, case.ended)
    assert (run.tenant_id, run.started_at) == ("1", claimed_row.started_at)
    assert run.finished_at >= before


def test_every_outcome_has_its_case() -> None:
    """So that one that is added is thought of."""
    assert {case.ended for case in CASES.values()} == {ended.value for ended in Ended}


def test_what_is_known_of_a_run_is_kept(verbs: Verbs, jobs: Jobs) -> None:
    """The result with the job, the error with the run, and its line with the job."""
    job = jobs.enqueue("ok")
    verbs.finish(
        verbs.must_claim(),
        "failed",
        error={"class": "ValueError", "message": "no"},
        summary="ValueError: no",
        stack="x",
        max_rss=4096,
    )
    verbs.finish(verbs.must_claim(), "done", result='{"invoices": 3}')
    failed, done = jobs.runs(job)
    assert (failed.error, failed.stack, failed.max_rss) == ({"class": "ValueError", "message": "no"}, "x", 4096)
    assert (done.error, done.stack, done.max_rss) == (None, None, None)
    assert (jobs[job].result, jobs[job].last_error) == ({"invoices": 3}, "ValueError: no")


def test_a_result_is_kept_only_of_a_job_that_is_done(verbs: Verbs, jobs: Jobs) -> None:
    """Whatever a caller sends along."""
    job = jobs.enqueue("ok")
    verbs.finish(verbs.must_claim(), "lost", result="1")
    assert jobs[job].result is None


@pytest.mark.parametrize("ended", [ended.value for ended in Ended])
def test_a_finish_that_is_sent_again_answers_the_same_and_writes_nothing(
    verbs: Verbs, jobs: Jobs, database: Database, ended: str
) -> None:
    """Rule 8: the answer may have been lost."""
    job = jobs.enqueue("ok")
    claimed = verbs.must_claim()
    assert verbs.finish(claimed, ended) is True
    first = (jobs[job], jobs.runs(job))
    assert verbs.finish(claimed, ended) is True
    assert (jobs[job], jobs.runs(job)) == first
    database.execute("update fencepost.jobs set run_at = now() where id = %s", [job])
    if verbs.claim() is not None:
        # Also when the next run has begun meanwhile.
        row = jobs[job]
        assert verbs.finish(claimed, ended) is True
        assert jobs[job] == row


def test_another_outcome_than_the_one_on_record_is_refused(verbs: Verbs, jobs: Jobs) -> None:
    """What the supervisor has booked as lost was not done, whatever the worker says later."""
    job = jobs.enqueue("ok")
    claimed = verbs.must_claim()
    assert verbs.finish(claimed, "lost")
    assert verbs.finish(claimed, "done", result="1") is False
    assert (jobs[job].status, jobs.outcomes(job)) == ("queued", ["lost"])


def test_a_finish_under_an_old_fence_changes_nothing(verbs: Verbs, jobs: Jobs) -> None:
    """C31: a paused process wakes up after its lease was given away."""
    job = jobs.enqueue("ok")
    old = verbs.must_claim()
    verbs.finish(old, "lost")
    new = verbs.must_claim()
    row = jobs[job]
    assert verbs.finish(old, "done") is False
    assert verbs.finish(new, "done", fence=old.fence) is False
    assert verbs.finish(new, "done", fence=new.fence + 1) is False
    assert jobs[job] == row
    assert jobs.outcomes(job) == ["lost"]
    assert verbs.finish(new, "done") is True


def test_a_finish_under_another_name_changes_nothing(verbs: Verbs, jobs: Jobs) -> None:
    """Rule 2: after a failover that lost commits a fence may repeat; the claim's name does not."""
    job = jobs.enqueue("ok")
    claimed = verbs.must_claim()
    assert verbs.finish(claimed, "done", name="somebody:else") is False
    assert (jobs[job].status, jobs.runs(job)) == ("running", [])


def test_a_finish_of_a_job_that_is_not_running_changes_nothing(verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """Nor of one that is gone."""
    job = jobs.enqueue("ok")
    claimed = verbs.must_claim()
    database.execute("delete from fencepost.jobs where id = %s", [job])
    assert verbs.finish(claimed, "done") is False


def test_an_unknown_outcome_is_refused_and_the_run_goes_on(verbs: Verbs, jobs: Jobs) -> None:
    """The run stays held, so that it can still be finished rightly."""
    job = jobs.enqueue("ok")
    claimed = verbs.must_claim()
    query = "select fencepost.finish(%s, %s, %s, 'succeeded')"
    with pytest.raises(Exception, match="outcome_is_known"):
        verbs.conn.execute(query, [claimed.id, claimed.fence, claimed.name])
    assert jobs[job].status == "running"
    assert verbs.finish(claimed, "done")


@pytest.mark.parametrize("ended", ["failed", "crashed", "overran", "snoozed"])
@pytest.mark.parametrize("wait", [timedelta(days=365 * 9000), timedelta.max], ids=["9,000 years", "the longest"])
def test_a_wait_beyond_all_dates_does_not_wedge_the_job(verbs: Verbs, jobs: Jobs, ended: str, wait: timedelta) -> None:
    """`Snooze(10**12)`, or a wait that doubled forty times: the finish must not fail for ever on the date."""
    job = jobs.enqueue("ok")
    assert verbs.finish(verbs.must_claim(), ended, wait=wait)
    assert jobs[job].status == "queued"


def test_a_finish_waits_for_a_lock_and_is_not_skipped(verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """Rule 16: a booking that skipped a locked row would lose the outcome. The caller's lock_timeout ends it."""
    job = jobs.enqueue("ok")
    claimed = verbs.must_claim()
    verbs.conn.execute("set lock_timeout = '50ms'")
    with database.conn(autocommit=False) as conn:
        conn.execute("select from fencepost.jobs where id = %s for update", [job])
        with pytest.raises(Exception, match="lock timeout"):
            verbs.finish(claimed, "done")
    assert verbs.finish(claimed, "done")


def test_a_finish_goes_by_primary_key_where_the_planner_is_tempted(
    database: Database, verbs: Verbs, connect: Callable[..., Connection]
) -> None:
    """The index of leases looks empty to the planner, and holds a dead entry of each run while an old one is open."""
    database.execute("insert into fencepost.jobs (kind) select 'ok' from generate_series(1, 3000)")
    database.execute("analyze fencepost.jobs")
    old = connect(autocommit=False)
    old.execute("set transaction isolation level repeatable read")
    old.execute("select count(*) from fencepost.jobs")
    database.execute(
        """update fencepost.jobs set status = 'running', attempts = 1, max_attempts = 1, fence = 1, locked_by = 'x',
           locked_until = now() + interval '1 hour', started_at = now() where id <= 2000"""
    )
    database.execute(
        """update fencepost.jobs set status = 'done', locked_by = null, locked_until = null, finished_at = now()
           where status = 'running'"""
    )
    claimed = verbs.must_claim()
    plans: list[str] = []
    with database.conn(autocommit=False) as conn:
        conn.add_notice_handler(lambda notice: plans.append(str(notice.message_primary)))
        conn.execute("load 'auto_explain'")
        for name, value in {
            "auto_explain.log_min_duration": "0",
            "auto_explain.log_nested_statements": "on",
            "auto_explain.log_analyze": "on",
            "auto_explain.log_level": "notice",
            "client_min_messages": "notice",
        }.items():
            conn.execute("select set_config(%s, %s, true)", [name, value])
        assert Verbs(conn).finish(claimed, "done")
    told = "\n".join(plans)
    assert "Update on jobs" in told, told
    assert "jobs_pkey" in told
    assert "jobs_leased" not in told
    assert "Seq Scan on jobs" not in told


def test_an_error_of_the_largest_size_is_kept(verbs: Verbs, jobs: Jobs) -> None:
    """Bounded before it comes here, and never refused for its size."""
    job = jobs.enqueue("ok")
    traceback = '\N{PILE OF POO}\x01"\n' * 16_000
    assert verbs.finish(verbs.must_claim(), "failed", error={"traceback": traceback}, summary="x" * 3000)
    assert jobs.runs(job)[0].error == {"traceback": traceback}


def test_the_rows_of_a_job_stay_small_however_often_it_fails(verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """C77: only the newest error stays with the job."""
    job = jobs.enqueue("ok", max_attempts=60)
    for _ in range(60):
        verbs.finish(verbs.must_claim(), "failed", summary="x" * 2000)
    row = database.execute("select pg_column_size(j) as size, status, attempts from fencepost.jobs j where id = %s", [job])[0]
    assert (row.status, row.attempts) == ("dead", 60)
    assert row.size < 128 * 1024
    assert len(jobs.runs(job)) == 60


def test_a_plain_worker_cannot_write_outcomes_past_the_fence(verbs: Verbs, jobs: Jobs) -> None:
    """The documented rights have no insert into job_runs: it is written by `finish` alone."""
    job = jobs.enqueue("ok")
    with pytest.raises(Exception, match="permission denied for table job_runs"):
        verbs.conn.execute(
            """insert into fencepost.job_runs (job_id, fence, attempt, worker, started_at, outcome)
               values (%s, 1, 1, 'x', now(), 'done')""",
            [job],
        )
    with verbs.conn.cursor(row_factory=namedtuple_row) as cursor:
        assert cursor.execute("select * from fencepost.job_runs").fetchall() == []
