# /// script
# [tool.speed]
# manner = "a process a job"
# batches = "nothing"
# crash = "the running jobs: failed after an hour, at most once by intention"
# worker = ["{python}", "{adapter}", "worker"]
# left = "select count(*) from pq_tasks where status <> 'COMPLETED'"
# pace = 0.05
# ///
"""python-pq, a fork a job, as many at a time as are asked for."""

from __future__ import annotations

import sys

import stamps
from pq import PQ
from pq.worker import run_worker


def noop() -> None:
    pass


def stamp(*, number: int) -> None:
    stamps.stamp(number)


def main(what: str) -> None:
    pq = PQ(stamps.DATABASE_URL.replace("postgresql:", "postgresql+psycopg2:"))
    if what == "setup":
        pq.run_db_migrations()
    elif what == "worker":
        run_worker(pq, concurrency=stamps.AT_A_TIME)
    elif what == "enqueue":
        for _ in range(stamps.how_many()):
            pq.enqueue(noop)
    else:
        for number in stamps.paced():
            pq.enqueue(stamp, number=number)


if __name__ == "__main__":
    import with_python_pq  # so that the tasks are not called __main__

    with_python_pq.main(sys.argv[1])
