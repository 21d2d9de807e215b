# /// script
# [tool.speed]
# manner = "batches"
# batches = "claims of twice as many as a process has threads; acknowledges each"
# crash = "the claimed jobs of the process run again after 60 s"
# setup = [["{bin}/dramatiq-postgres", "--dsn={database}", "init"]]
# worker = ["{python}", "{adapter}", "worker", "{bin}/dramatiq"]
# left = "select count(*) from dramatiq.queue"
# pace = 0.4
# ///
"""dramatiq on PostgreSQL, two processes of threads, as many as are asked for. What is acknowledged leaves the table."""

from __future__ import annotations

import os
import sys

import dramatiq
import stamps
from dramatiq_postgres import PostgresBroker

broker = PostgresBroker(url=stamps.DATABASE_URL)
dramatiq.set_broker(broker)


@dramatiq.actor
def noop() -> None:
    pass


@dramatiq.actor
def stamp(number: int) -> None:
    stamps.stamp(number)


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        processes = min(2, stamps.AT_A_TIME)
        sizes = [f"--processes={processes}", f"--threads={stamps.AT_A_TIME // processes}"]
        os.execv(sys.argv[2], [sys.argv[2], "with_dramatiq_postgres", *sizes])
    if sys.argv[1] == "enqueue":
        for _ in range(stamps.how_many()):
            noop.send()
    else:
        for number in stamps.paced():
            stamp.send(number)
    broker.close()
