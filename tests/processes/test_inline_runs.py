"""A run of `fencepost.testing` ends as the same run of a real worker does."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection
from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb

from fencepost.testing import drain
from support.databases import Database
from support.jobs import Jobs
from support.processes import Supervisor
from support.waiting import wait_until

SUPPORT = Path(__file__).parents[1] / "support"

CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "returns": ("ok", {}, {}),
    "writes": ("writes", {"note": "x"}, {}),
    "writes once": ("writes_once", {}, {}),
    "coroutine writes": ("writes_async", {}, {"tenant": "acme"}),
    "coroutine writes once": ("writes_once_async", {}, {}),
    "coroutine fails in its one transaction": ("writes_once_async", {"fail": True}, {}),
    "tenantless": ("tenantless", {}, {"tenant": None}),
    "needs a tenant": ("ok", {}, {"tenant": None}),
    "fails": ("fails", {"text": "a reason"}, {}),
    "fails at its last attempt": ("fails", {}, {"max_attempts": 1}),
    "an entry that it does not know": ("ok", {"unknown": 1}, {}),
    "retries": ("retries", {"after": 600}, {}),
    "retries at its last attempt": ("retries", {"after": 600}, {"max_attempts": 1}),
    "snoozes": ("snoozes", {"after": 1200}, {"max_attempts": 1}),
    "gives up": ("gives_up", {"reason": "hopeless"}, {}),
    "cancels": ("cancels", {"reason": "not needed"}, {}),
    "SystemExit": ("raises_system_exit", {"code": "text"}, {}),
    "GeneratorExit": ("raises_by_name", {"name": "GeneratorExit"}, {}),
    "StopIteration": ("raises_by_name", {"name": "StopIteration"}, {}),
    "CancelledError": ("raises_cancelled", {}, {}),
    "a stop of its own": ("raises_a_stop_of_its_own", {}, {}),
    "can't be told": ("raises_what_cannot_be_told", {}, {}),
    "odd text": ("raises_odd_text", {}, {}),
    "a set": ("returns_a_set", {}, {}),
    "NUL": ("returns_nul", {}, {}),
    "too much": ("returns_much", {}, {}),
    "a generator": ("returns_a_generator", {}, {}),
    "commit()": ("commits_by_hand", {}, {}),
    "close()": ("closes_its_connection", {}, {}),
    "COMMIT": ("commits_by_sql", {}, {}),
    "COMMIT in a coroutine": ("commits_async", {}, {}),
    "COMMIT, swallowed": ("swallows_its_own_commit", {}, {}),
    "COMMIT and BEGIN": ("begins_another", {}, {}),
    "a connection that it kept": ("keeps_its_connection", {}, {}),
    "a transaction left open": ("leaves_a_transaction_open", {}, {}),
    "an error of a statement, swallowed": ("aborts_its_transaction", {}, {}),
}


@pytest.fixture
def real_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handlers that the supervisors of the tests have, and no others."""
    monkeypatch.syspath_prepend(SUPPORT)
    monkeypatch.setattr("fencepost.handlers._handlers", {})
    for name in ("handlers_for_tests", "handlers_of_accidents"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.import_module(name)


def put(conn: Connection, kind: str, payload: dict[str, Any], options: dict[str, Any], priority: int = 0) -> int:
    """Enqueue a job, by SQL: past what refuses one without a tenant."""
    arguments = {"kind": kind, "payload": Jsonb(payload), "tenant": "1", "max_attempts": None, "priority": priority, **options}
    query = """
        select fencepost.enqueue(
            %(kind)s, %(payload)s, tenant => %(tenant)s, max_attempts => %(max_attempts)s, priority => %(priority)s
        )
    """
    return conn.execute(query, arguments).fetchone()[0]


def facts(conn: Connection, job_id: int) -> dict[str, Any]:
    """Return what the tables say of a job, without what differs between any two runs."""

    def rows(query: str) -> list[Any]:
        return conn.cursor(row_factory=namedtuple_row).execute(query, [job_id]).fetchall()

    (job,) = rows(
        "select j.*, (select count(*) from test.rows r where r.job = j.id) written from fencepost.jobs j where id = %s"
    )
    runs = rows("select * from fencepost.job_runs where job_id = %s order by fence")
    waits = job.run_at - runs[-1].finished_at if job.status == "queued" else timedelta(0)
    return {
        **{name: getattr(job, name) for name in ("status", "attempts", "max_attempts", "interruptions", "fence", "tenant_id")},
        **{name: getattr(job, name) for name in ("result", "last_error", "locked_by", "locked_until", "written")},
        # A wait of the settings' own is an hour, and up to one more at random.
        "waits": "an hour or two" if waits >= timedelta(hours=1) else round(waits.total_seconds()),
        "runs": [
            (run.fence, run.attempt, run.outcome, run.tenant_id, run.stack, run.max_rss is None, described(run.error))
            for run in runs
        ],
    }


def described(error: dict[str, Any] | None) -> tuple[str, str] | None:
    return None if error is None else (error["class"], error["message"])


@pytest.mark.usefixtures("real_handlers")
def test_every_way_to_end_leaves_the_same_in_the_tables_inline_as_in_a_worker(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same handlers, claimed by a worker and drained here: status, counts, waits, results, errors, and what was written."""
    for name, value in {"BACKOFF": "1h", "BACKOFF_MAX": "1h", "MAX_ATTEMPTS": "3"}.items():
        monkeypatch.setenv(f"FENCEPOST_{name}", value)
    monkeypatch.setenv("DATABASE_URL", database.worker_url)

    really = {name: put(database.owner, *case) for name, case in CASES.items()}
    start_supervisor(backoff="1h", backoff_max="1h", max_attempts=3)
    in_a_worker = {}
    for name, job in really.items():
        wait_until(lambda job=job: jobs.runs(job), within=20, what=f"the end of a run: {name}")
        in_a_worker[name] = facts(database.owner, job)

    inline = {}
    for name, case in CASES.items():
        with database.worker_conn(autocommit=False) as conn:
            # Before whatever else there is: the follow-up of another job, say.
            job = put(conn, *case, priority=-1)
            (ran,) = drain(conn, limit=1)
            inline[name] = facts(conn, job)
            assert (ran.job_id, ran.status, ran.result, ran.summary) == (
                job,
                *(inline[name][fact] for fact in ("status", "result", "last_error")),
            )
            conn.rollback()
    assert inline == in_a_worker
    assert {one["runs"][0][2] for one in inline.values()} == {"done", "failed", "snoozed", "cancelled"}
