# /// script
# [tool.speed]
# manner = "a process a job"
# batches = "fetches four for each process; a message that was fetched is gone"
# crash = "the running jobs and those fetched, for good"
# worker = ["{bin}/celery", "-A", "with_celery", "worker", "--concurrency={n}", "--without-gossip", "--without-mingle"]
# left = "select count(*) from kombu_message where visible"
# pace = 0.1
# ///
"""celery with kombu's SQLAlchemy transport, which its documentation calls experimental; prefork, its default.

The table knows a message as fetched or not: that is what is counted.
"""

from __future__ import annotations

import sys

import stamps
from celery import Celery

app = Celery("with_celery", broker=stamps.DATABASE_URL.replace("postgresql:", "sqla+postgresql+psycopg2:"))
app.conf.task_ignore_result = True
app.conf.broker_connection_retry_on_startup = True


@app.task(name="noop")
def noop() -> None:
    pass


@app.task(name="stamp")
def stamp(number: int) -> None:
    stamps.stamp(number)


if __name__ == "__main__":
    if sys.argv[1] == "enqueue":
        for _ in range(stamps.how_many()):
            noop.apply_async()
    elif sys.argv[1] == "latency":
        for number in stamps.paced():
            stamp.apply_async(args=[number])
    else:
        # The transport creates its tables when first used.
        noop.apply_async()
