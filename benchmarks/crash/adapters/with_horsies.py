# /// script
# [tool.crash]
# several = true
# rescue = "running task stale after 10 s (default 300 s), looked for every 2 s"
# worker = ["{bin}/horsies", "worker", "with_horsies:app", "--processes=4"]
# jobs = """
# select label,
#     case coalesce(h.status::text, t.status::text) when 'PENDING' then 'waiting' when 'CLAIMED' then 'waiting'
#         when 'RUNNING' then 'running' when 'COMPLETED' then 'done' else 'dead' end,
#     coalesce(h.retry_count, t.retry_count) + case t.status::text when 'PENDING' then 0 else 1 end
#         || '/' || coalesce(h.max_retries, t.max_retries) + 1
# from crash_labels
# left join horsies_tasks t on t.id::text = task
# left join horsies_task_history h on h.task_id::text = task"""
# ///
"""horsies, four processes, its recovery as short as the others'.

A lost run is tried again only where the task's retry policy lists WORKER_CRASHED: it does here. Two retries are three runs.
What is at its end is kept elsewhere and without its arguments, so a table of ours tells which task is which.
"""

from __future__ import annotations

import os
import sys

import accident
import psycopg
from horsies import AppConfig, Horsies, PostgresConfig, RetryPolicy, TaskError, TaskResult
from horsies.core.models.recovery import RecoveryConfig

app = Horsies(
    AppConfig(
        broker=PostgresConfig(database_url=accident.DATABASE_URL.replace("postgresql:", "postgresql+psycopg:")),
        recovery=RecoveryConfig(
            claimed_stale_threshold_ms=10_000,
            claimer_heartbeat_interval_ms=2000,
            running_stale_threshold_ms=10_000,
            runner_heartbeat_interval_ms=2000,
            finalizing_stale_threshold_ms=10_000,
            check_interval_ms=2000,
        ),
    )
)
thrice = RetryPolicy.fixed([1, 1], auto_retry_for=["UNHANDLED_EXCEPTION", "WORKER_CRASHED", "TASK_TIMEOUT"], jitter=False)


@app.task("work", retry_policy=thrice)
def work(*, label: str, ticks: int) -> TaskResult[int, TaskError]:
    accident.work(label, ticks)
    return TaskResult(ok=1)


@app.task("poison", retry_policy=thrice, timeout_ms=accident.POISON_LIMIT * 1000)
def poison(*, label: str, way: str) -> TaskResult[int, TaskError]:
    accident.poison(label, way)
    return TaskResult(ok=1)


app.discover_tasks(["with_horsies"])

if __name__ == "__main__":
    from with_horsies import poison, work  # so that the tasks are not called __main__

    with psycopg.connect(accident.DATABASE_URL, autocommit=True) as conn:
        if sys.argv[1] == "setup":
            conn.execute("create table crash_labels (task text, label text)")
        else:
            for payload in accident.payloads():
                sent = (poison if "way" in payload else work).send(**payload)
                if sent.is_err():
                    raise SystemExit(str(sent.err_value))
                conn.execute("insert into crash_labels values (%s, %s)", (sent.ok_value.task_id, payload["label"]))
    # It leaves threads that would be waited for.
    sys.stdout.flush()
    os._exit(0)
