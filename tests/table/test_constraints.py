"""The table refuses impossible states, whoever writes them."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from support.databases import Database
from support.jobs import Jobs
from support.verbs import Verbs

RUNNING: dict[str, Any] = {
    "status": "running", "attempts": 1, "max_attempts": 3, "fence": 1, "locked_by": "w:1",
    "locked_until": "2026-01-01", "started_at": "2026-01-01",
}  # fmt: skip
DONE: dict[str, Any] = {"status": "done", "attempts": 1, "max_attempts": 3, "fence": 1, "finished_at": "2026-01-01"}
DEAD = {**DONE, "status": "dead"}

POSSIBLE: dict[str, dict[str, Any]] = {
    "queued": {},
    "queued again": {"attempts": 2, "max_attempts": 3, "fence": 2, "started_at": "2026-01-01", "last_error": "x"},
    "running": RUNNING,
    "running its last": {**RUNNING, "attempts": 3, "fence": 3},
    "asked to stop": {**RUNNING, "cancel_requested_at": "2026-01-01"},
    "done": {**DONE, "result": "1"},
    "dead": DEAD,
    "cancelled before it ran": {"status": "cancelled", "cancel_requested_at": "2026-01-01", "finished_at": "2026-01-01"},
}

IMPOSSIBLE: dict[str, tuple[str, dict[str, Any]]] = {
    "an unknown status": ("status_is_known", {"status": "paused"}),
    "running without a lease": ("only_a_running_job_is_leased", {**RUNNING, "locked_until": None}),
    "running without a holder": ("only_a_running_job_is_leased", {**RUNNING, "locked_by": None}),
    "queued with a lease": ("only_a_running_job_is_leased", {"locked_until": "2026-01-01"}),
    "queued with a holder": ("only_a_running_job_is_leased", {"locked_by": "w:1"}),
    "done with a lease": ("only_a_running_job_is_leased", {**DONE, "locked_until": "2026-01-01", "locked_by": "w:1"}),
    "done without an end": ("only_a_job_at_rest_is_finished", {**DONE, "finished_at": None}),
    "dead without an end": ("only_a_job_at_rest_is_finished", {**DEAD, "finished_at": None}),
    "cancelled without an end": ("only_a_job_at_rest_is_finished", {"status": "cancelled"}),
    "queued with an end": ("only_a_job_at_rest_is_finished", {"finished_at": "2026-01-01"}),
    "running with an end": ("only_a_job_at_rest_is_finished", {**RUNNING, "finished_at": "2026-01-01"}),
    "dead with a result": ("only_a_done_job_has_a_result", {**DEAD, "result": "1"}),
    "queued with a result": ("only_a_done_job_has_a_result", {"result": "1"}),
    "running uncounted": ("a_running_job_is_counted", {**RUNNING, "attempts": 0}),
    "running without a start": ("a_running_job_is_counted", {**RUNNING, "started_at": None}),
    "running beyond its budget": ("attempts_stay_in_budget", {**RUNNING, "attempts": 4, "fence": 4}),
    "running without a budget": ("attempts_stay_in_budget", {**RUNNING, "max_attempts": None}),
    "negative attempts": ("attempts_stay_in_budget", {"attempts": -1}),
    "queued with no attempts left": ("a_waiting_job_has_attempts_left", {"attempts": 3, "max_attempts": 3, "fence": 3}),
    "queued and asked to stop": ("a_waiting_job_is_not_to_be_cancelled", {"cancel_requested_at": "2026-01-01"}),
    "no attempt at all": ("a_budget_allows_one_attempt|a_waiting_job_has_attempts_left", {"max_attempts": 0}),
    "a fence below the attempts": ("a_run_was_claimed", {**RUNNING, "fence": 0}),
    "a fence below the interruptions": ("a_run_was_claimed", {"interruptions": 1}),
    "negative interruptions": ("a_run_was_claimed", {"interruptions": -1}),
    "due before all dates": ("run_at_is_a_date", {"run_at": "-infinity"}),
    "due never": ("run_at_is_a_date", {"run_at": "infinity"}),
    "due before Christ": ("run_at_is_a_date", {"run_at": "0044-03-15 BC"}),
    "due after what clients can read": ("run_at_is_a_date", {"run_at": "10000-01-01"}),
    "no runtime": ("max_runtime_is_a_duration", {"max_runtime": "0"}),
    "a negative runtime": ("max_runtime_is_a_duration", {"max_runtime": "-1 s"}),
    "an endless runtime": ("max_runtime_is_a_duration", {"max_runtime": "30000 years"}),
    "no queue": ("queue_has_a_name", {"queue": ""}),
    "a queue too long": ("queue_has_a_name", {"queue": "é" * 65}),
    "no kind": ("kind_has_a_name", {"kind": ""}),
    "a kind too long": ("kind_has_a_name", {"kind": "é" * 129}),
    "an empty tenant": ("tenant_is_not_blank", {"tenant_id": ""}),
    "a blank tenant": ("tenant_is_not_blank", {"tenant_id": " \t\n"}),
    "an empty key": ("unique_key_has_a_name", {"unique_key": ""}),
    "a key too long": ("unique_key_has_a_name", {"unique_key": "x" * 1025}),
}


def insert(database: Database, columns: dict[str, Any]) -> None:
    row = {"kind": "ok", **columns}
    names, places = ", ".join(row), ", ".join(["%s"] * len(row))
    database.execute(f"insert into fencepost.jobs ({names}) values ({places})", list(row.values()))


@pytest.mark.parametrize("columns", POSSIBLE.values(), ids=POSSIBLE)
def test_what_is_possible_is_taken(database: Database, columns: dict[str, Any]) -> None:
    """Each state that the verbs lead to."""
    insert(database, columns)


@pytest.mark.parametrize(("constraint", "columns"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_is_impossible_is_refused(database: Database, constraint: str, columns: dict[str, Any]) -> None:
    """By the constraint that is named after it."""
    with pytest.raises(psycopg.errors.CheckViolation, match=constraint):
        insert(database, columns)


@pytest.mark.parametrize(
    "column", ["queue", "kind", "payload", "priority", "run_at", "status", "attempts", "interruptions", "fence"]
)
def test_what_every_job_has_is_never_null(database: Database, column: str) -> None:
    """A CHECK is content with null."""
    with pytest.raises(psycopg.errors.NotNullViolation):
        insert(database, {column: None})


def test_one_key_has_one_living_job(database: Database, jobs: Jobs) -> None:
    """Queued and running together: whatever rests does not count."""
    insert(database, {**DONE, "unique_key": "k"})
    insert(database, {**DEAD, "unique_key": "k"})
    insert(database, {**RUNNING, "unique_key": "k"})
    with pytest.raises(psycopg.errors.UniqueViolation, match="jobs_unique_key"):
        insert(database, {"unique_key": "k"})


def test_a_run_has_one_outcome(database: Database, jobs: Jobs) -> None:
    """Job and fence are its key: a second row for it can't be written."""
    job = jobs.enqueue("ok")
    insert_run = """
        insert into fencepost.job_runs (job_id, fence, attempt, worker, started_at, outcome)
        values (%s, 1, 1, 'w:1', now(), %s)
    """
    database.execute(insert_run, [job, "lost"])
    with pytest.raises(psycopg.errors.UniqueViolation):
        database.execute(insert_run, [job, "done"])
    with pytest.raises(psycopg.errors.CheckViolation, match="outcome_is_known"):
        database.execute(insert_run, [jobs.enqueue("ok"), "succeeded"])


def test_there_is_one_version(database: Database) -> None:
    """C114: it can't be written several times."""
    with pytest.raises(psycopg.errors.UniqueViolation):
        database.execute("insert into fencepost.schema_version (version) values (7)")
    with pytest.raises(psycopg.errors.CheckViolation, match="there_is_one_version"):
        database.execute("insert into fencepost.schema_version (version, only_row) values (7, false)")


def test_runs_go_with_their_job(verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """However a job is deleted: no foreign key looks at each finish for that."""
    first, second, third = (jobs.enqueue("ok") for _ in range(3))
    for _ in range(3):
        verbs.finish(verbs.must_claim())
    database.execute("delete from fencepost.jobs where id = any (%s)", [[first, second]])
    assert database.value("select array_agg(job_id) from fencepost.job_runs") == [third]
    database.execute("truncate fencepost.jobs")
    assert database.value("select count(*) from fencepost.job_runs") == 0
