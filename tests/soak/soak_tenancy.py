"""What it costs that nothing of a tenant stays: `make tenancy`, JOBS=1000 ROUNDS=15.

Fencepost as it is against itself with the tenant set for the session and sessions that nobody cleans, in turns in one run, on a
server that is as durable as in life. Each job writes a row in a transaction of its own.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable

import pytest

from support.databases import Database
from support.processes import Supervisor
from support.servers import Server
from support.waiting import wait_until

JOBS = int(os.environ.get("JOBS", "1000"))
ROUNDS = int(os.environ.get("ROUNDS", "15"))
AT_MOST = 1.15

HANDLERS = """
from fencepost import handler

@handler("writes_a_row")
def writes_a_row(job):
    with job.transaction() as conn:
        conn.execute("insert into test.rows (job, attempt) values (%s, %s)", [job.id, job.attempt])
"""
LEAKS = """
from fencepost.jobs import sql
from fencepost.worker.session import Session

whole = sql.in_schema
sql.in_schema = lambda text, schema: whole(text.replace("'fencepost_job.tenant'), %(tenant)s, true)",
                                                        "'fencepost_job.tenant'), %(tenant)s, false)"), schema)
Session.clean = lambda self, kind, **_: None
"""
ENQUEUE = "select count(fencepost.enqueue('writes_a_row', tenant => (n %% 100)::text)) from generate_series(1, %s) n"
LEFT = "select count(*) from fencepost.jobs where status <> 'done'"
TOOK = "select extract(epoch from max(finished_at) - min(started_at))::float8 from fencepost.jobs"


@pytest.mark.timeout(0)
def test_clean_sessions_cost_little(
    start_server: Callable[..., Server],
    create_database: Callable[[Server], Database],
    start_supervisor: Callable[..., Supervisor],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """At most 1.15 times what leaking costs."""
    database = create_database(start_server(fsync="on", full_page_writes="on"))

    def took(**files: str) -> float:
        named = {f"{name}.py": text for name, text in files.items()}
        supervisor = start_supervisor(
            database.worker_url, handlers="rows", concurrency=4, log_level="warning", files={"rows.py": HANDLERS, **named}
        )
        supervisor.wait_for_workers(4)
        database.execute("truncate fencepost.jobs, fencepost.job_runs, test.rows")
        database.execute(ENQUEUE, [JOBS])
        wait_until(lambda: database.value(LEFT) == 0, within=JOBS / 20, what="the end of all jobs")
        supervisor.stop()
        return float(database.value(TOOK))

    ratios = []
    with capsys.disabled():
        print()
        for number in range(ROUNDS):
            # In turns: who is first finds the machine as the other left it.
            if number % 2:
                leaking, clean = took(sitecustomize=LEAKS), took()
            else:
                clean, leaking = took(), took(sitecustomize=LEAKS)
            ratios.append(clean / leaking)
            print(f"clean {JOBS / clean:.0f} jobs/s, leaking {JOBS / leaking:.0f} jobs/s: {ratios[-1]:.2f}")
        print(f"median {statistics.median(ratios):.2f}")
    assert statistics.median(ratios) <= AT_MOST
