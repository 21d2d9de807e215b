# /// script
# [tool.crash]
# several = true
# rescue = "stale after 10 s (default 1 h), and then failed: at most once by intention"
# worker = ["{python}", "{adapter}", "worker"]
# jobs = """
# select payload->'kwargs'->>'label',
#     case status::text when 'PENDING' then 'waiting' when 'RUNNING' then 'running' when 'COMPLETED' then 'done'
#         else 'dead' end,
#     attempts::text
# from pq_tasks"""
# ///
"""python-pq, a fork a job. It has no retries: a job whose run has failed is failed.

A task that is stale has waited for at least twice its own max runtime, where that is longer.
"""

from __future__ import annotations

import sys
from datetime import timedelta

import accident
from pq import PQ
from pq.worker import run_worker


def work(**payload: object) -> None:
    accident.work(**payload)


def poison(**payload: object) -> None:
    accident.poison(**payload)


def main(what: str) -> None:
    pq = PQ(accident.DATABASE_URL.replace("postgresql:", "postgresql+psycopg2:"))
    if what == "setup":
        pq.run_db_migrations()
    elif what == "worker":
        run_worker(pq, concurrency=4, poll_interval=0.5, max_runtime=60, stale_task_timeout=timedelta(seconds=10))
    else:
        for payload in accident.payloads():
            if "way" in payload:
                pq.enqueue(poison, max_runtime_seconds=float(accident.POISON_LIMIT), **payload)
            else:
                pq.enqueue(work, **payload)


if __name__ == "__main__":
    import with_python_pq  # so that the tasks are not called __main__

    with_python_pq.main(sys.argv[1])
