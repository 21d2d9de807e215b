"""What an idle supervisor costs, and what it says."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from support.databases import Database
from support.jobs import Jobs
from support.processes import Supervisor
from support.waiting import wait_until


def ready(supervisor: Supervisor) -> list[str]:
    """Return the names of the workers that were said to be ready."""
    return [line["worker"] for line in supervisor.logs() if line["event"] == "a worker is ready"]


def test_idle_workers_send_no_statements(start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database) -> None:
    """C113, promise 12: three seconds in which no worker's session does anything; a job then starts at once all the same."""
    supervisor = start_supervisor(concurrency=4)
    for job in [jobs.enqueue("quick") for _ in range(20)]:
        jobs.wait_for(job)
    # Told at the next tick, and jobs may have been done by then.
    wait_until(lambda: len(ready(supervisor)) == 4, what="a line on each worker")
    workers = ready(supervisor)
    last = """
        select application_name, max(state_change) from pg_stat_activity
        where application_name = any (%s) group by 1 order by 1
    """
    names = [f"fencepost {worker}" for worker in workers]
    wait_until(lambda: all("idle" in title(pid) for pid in supervisor.workers()), what="idle workers")
    before = database.execute(last, [names])
    began = time.monotonic()
    wait_until(lambda: time.monotonic() - began > 3, what="three seconds")
    assert database.execute(last, [names]) == before
    assert before
    row = jobs.wait_for(jobs.enqueue("ok"))
    assert (row.started_at - row.created_at).total_seconds() < 0.3
    # One is woken for one job; another only if a poll has come just then.
    wait_until(lambda: all("idle" in title(pid) for pid in supervisor.workers()), what="idle workers")
    assert len(set(database.execute(last, [names])) - set(before)) <= 2


def test_every_line_of_a_job_tells_whose_it_is(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """A5: ours and any library's: job, attempt, fence, worker and tenant."""
    supervisor = start_supervisor(concurrency=1)
    job = jobs.enqueue("logs_something", {}, tenant="acme")
    jobs.wait_for(job)
    for event in ("run started", "something happened", "run ended"):
        line = supervisor.wait_for_log(event)
        assert (line["job"], line["attempt"], line["fence"], line["tenant"]) == (job, 1, 1, "acme")
        assert line["worker"].startswith("w")


def title(pid: int) -> str:
    """Return a process' title."""
    return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")
