# /// script
# [tool.speed]
# manner = "a process a job"
# batches = "claims of as many as it has room for; acknowledges each"
# crash = "the running jobs, looked for after 300 s; run again where their retry policy says so"
# worker = ["{bin}/horsies", "worker", "with_horsies:app", "--processes={n}", "--loglevel=WARNING"]
# left = "select count(*) from horsies_tasks"
# pace = 0.05
# ///
"""horsies, a job in a process of a pool, as many as are asked for. What is done leaves the table for its history."""

from __future__ import annotations

import os
import sys

import stamps
from horsies import AppConfig, Horsies, PostgresConfig, TaskError, TaskResult

app = Horsies(AppConfig(broker=PostgresConfig(database_url=stamps.DATABASE_URL.replace("postgresql:", "postgresql+psycopg:"))))


@app.task("noop")
def noop() -> TaskResult[int, TaskError]:
    return TaskResult(ok=1)


@app.task("stamp")
def stamp(*, number: int) -> TaskResult[int, TaskError]:
    stamps.stamp(number)
    return TaskResult(ok=1)


app.discover_tasks(["with_horsies"])

if __name__ == "__main__":
    from with_horsies import noop, stamp  # so that the tasks are not called __main__

    sent = []
    if sys.argv[1] == "enqueue":
        sent = [noop.send() for _ in range(stamps.how_many())]
    elif sys.argv[1] == "latency":
        sent = [stamp.send(number=number) for number in stamps.paced()]
    if any(one.is_err() for one in sent):
        raise SystemExit("a task could not be sent")
    # It leaves threads that would be waited for.
    sys.stdout.flush()
    os._exit(0)
