"""What an idle supervisor costs, and what it says."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil

from support.databases import Database
from support.jobs import Jobs
from support.processes import Supervisor
from support.proxy import Fault, Proxy
from support.servers import Server
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


def test_an_idle_supervisor_sends_one_short_statement_a_second_and_one_enqueue_wakes_one_worker(
    start_server: Callable[..., Server],
    create_database: Callable[[Server], Database],
    start_supervisor: Callable[..., Supervisor],
) -> None:
    """C113: with settings as delivered, whatever the number of workers; those who look for one job are few."""
    database = create_database(start_server(log_statement="all"))
    jobs = Jobs(database)
    supervisor = start_supervisor(
        database.worker_url, concurrency=6, sweep="1s", heartbeat="15s", lease="60s", max_runtime="60s"
    )
    for job in [jobs.enqueue("quick") for _ in range(12)]:
        jobs.wait_for(job)
    wait_until(lambda: len(ready(supervisor)) == 6, what="a line on each worker")
    # What a worker has not looked at yet it looks at once more, a moment after it has found nothing.
    rested = """
        select max(state_change) < clock_timestamp() - interval '3 s' from pg_stat_activity
        where application_name like 'fencepost w%' and datname = current_database()
    """
    wait_until(lambda: database.value(rested), within=20, what="workers that have nothing to look at")

    def sent() -> list[str]:
        lines = (line for line in database.log_lines() if f" {database.name} fencepost " in line)
        return [line for line in lines if "execute " in line or "statement: " in line]

    def turns() -> int:
        return psutil.Process(supervisor.pid).num_ctx_switches().voluntary

    before, before_turns, began = len(sent()), turns(), time.monotonic()
    wait_until(lambda: time.monotonic() - began > 6, what="six seconds")
    # A tick a second, and a statement, for whose answer it waits once or twice.
    assert turns() - before_turns <= 6 * (1 + 4)
    by_workers = [line for line in sent()[before:] if " fencepost w" in line]
    # One a second; the row and the session that listens now and then.
    assert (by_workers, len(sent()) - before <= 6 + 4) == ([], True), sent()[before:]
    before = len(sent())
    for _ in range(5):
        jobs.wait_for(jobs.enqueue("quick"))
    claims = [line for line in sent()[before:] if " fencepost w" in line and "with finished as" in line]
    # For each: its own, the one after it that finds nothing, and as many of another that a poll has woken; on a busy machine of
    # one or two more, where another poll comes before the end. Were all six woken, it would be twelve.
    assert 5 <= len(claims) <= 5 * 8, claims
    # After such a rest, too, a run is held to its deadlines.
    wait_until(lambda: database.value(rested), within=20, what="workers that have nothing to look at")
    dead = jobs.wait_for(jobs.enqueue("spins_in_python", max_runtime=1, max_attempts=1), "dead")
    assert (dead.finished_at - dead.started_at).total_seconds() < 1 + 5 + 1


def test_a_notification_wakes_a_worker_before_anything_is_asked(
    proxy: Proxy, start_supervisor: Callable[..., Supervisor], database: Database
) -> None:
    """How much work there is, is counted behind it: a poll that hangs holds up none of the first jobs."""
    jobs = Jobs(database)
    supervisor = start_supervisor(proxy.url(database.worker_url), concurrency=2, poll="30s", sweep="30s")
    jobs.wait_for(jobs.enqueue("quick"))
    wait_until(lambda: len(ready(supervisor)) == 2, what="a line on each worker")
    wait_until(lambda: all("idle" in title(pid) for pid in supervisor.workers()), what="idle workers")
    wait_until(lambda: proxy.has("listen"), what="the session that listens")
    hangs = proxy.arm(Fault("look", "duty", "hang_before"))
    first = jobs.enqueue("quick")
    wait_until(hangs.hit.is_set, what="a poll that hangs")
    second = jobs.enqueue("quick")
    for job in (first, second):
        row = jobs.wait_for(job)
        assert (row.started_at - row.created_at).total_seconds() < 2


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
