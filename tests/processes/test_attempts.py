"""What counts as an attempt, whatever ends it; and when what has failed comes back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from psycopg import errors

from support.databases import Database
from support.jobs import Jobs
from support.processes import Supervisor
from support.waiting import wait_until

HANDLERS = "handlers_for_tests,handlers_of_accidents,handlers_of_sessions"


def test_a_crash_a_failure_and_a_hang_are_one_attempt_each(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """C88: four runs of four, and no fifth; how each ended is on record, in their order."""
    supervisor = start_supervisor(handlers=HANDLERS, backoff="0.1s", kill_grace="0.2s")
    well, ill = (jobs.enqueue("ends_in_every_way", {"well": well}, max_attempts=4, max_runtime=1) for well in (True, False))
    assert jobs.wait_for(well, within=20).attempts == 4
    assert jobs.wait_for(ill, "dead", within=20).attempts == 4
    for job, last in ((well, "done"), (ill, "failed")):
        assert jobs.outcomes(job) == ["crashed", "failed", "overran", last]
        assert [mark.attempt for mark in jobs.marks(job)] == [1, 2, 3, 4]
        crashed, failed, overran, _ = jobs.runs(job)
        assert "SIGKILL (signal 9)" in crashed.error["message"]
        assert failed.error["class"] == "ValueError"
        assert "in ends_in_every_way" in overran.stack
    assert jobs.runs(ill)[-1].error["class"] == "LookupError"
    assert supervisor.is_alive()


def test_sixty_that_failed_together_are_put_back_far_apart(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C87: not sooner than BACKOFF after the failure, and spread over the seconds behind it."""
    database.execute("select fencepost.enqueue('fails', tenant => '1') from generate_series(1, 60)")
    start_supervisor(backoff="10s", log_level="info")
    waits_of = """
        select extract(epoch from j.run_at - r.finished_at)::float8 as seconds
        from fencepost.jobs j join fencepost.job_runs r on r.job_id = j.id where j.status = 'queued' and r.outcome = 'failed'
    """
    wait_until(lambda: len(database.execute(waits_of)) == 60, what="sixty failures")
    waits = [row.seconds for row in database.execute(waits_of)]
    assert min(waits) >= 10
    assert max(waits) - min(waits) > 1
    assert len({round(wait, 3) for wait in waits}) >= 40


MISFITS = {
    "exits": ("{}", "missing 1 required keyword-only argument: 'code'"),
    "ok": ('{"unknown": 1}', "unexpected keyword argument 'unknown'"),
    "quick": ("[]", "the payload must be a JSON object"),
    "fails": ('"x"', "the payload must be a JSON object"),
}


def test_a_payload_that_does_not_fit_its_handler_is_one_failed_run(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C96: put in past `enqueue`, by an older version say: dead within 3 s, told as Python tells it; the worker stays."""
    supervisor = start_supervisor(concurrency=1)
    workers = supervisor.wait_for_workers(1)
    insert = "insert into fencepost.jobs (kind, payload, tenant_id, max_attempts) values (%s, %s, '1', 1) returning id"
    for kind, (payload, told) in MISFITS.items():
        job = database.value(insert, [kind, payload])
        row = jobs.wait_for(job, "dead", within=5)
        assert (row.finished_at - row.created_at).total_seconds() < 3
        (run,) = jobs.runs(job)
        assert (run.outcome, run.error["class"]) == ("failed", "TypeError")
        assert told in row.last_error
    with pytest.raises(errors.CheckViolation, match="kind_has_a_name"):
        database.execute(insert, ["", "{}"])
    assert jobs.wait_for(jobs.enqueue("ok")).attempts == 1
    assert supervisor.workers() == workers


def test_the_next_attempt_begins_when_it_is_due_however_far_apart_polls_are(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """A notification says that there is something to be due, as for a job that is enqueued for later."""
    start_supervisor(poll="60s", backoff="0.2s").wait_for_workers(2)
    failed = jobs.enqueue("fails_until_attempt", {"attempt": 3})
    assert jobs.wait_for(failed, within=8).attempts == 3
    runs = jobs.runs(failed)
    assert all((later.started_at - earlier.finished_at).total_seconds() < 3 for earlier, later in pairwise(runs))
