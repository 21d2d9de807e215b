# /// script
# [tool.speed]
# manner = "job by job"
# batches = "nothing"
# crash = "the running jobs, found by the documented periodic task after 30 s; it asks of no attempts"
# setup = [["{bin}/procrastinate", "--app=with_procrastinate.app", "schema", "--apply"]]
# worker = ["{bin}/procrastinate", "--app=with_procrastinate.app", "worker", "--concurrency={n}"]
# left = "select count(*) from procrastinate_jobs where status <> 'succeeded'"
# pace = 0.2
# ///
"""procrastinate, coroutines in one process, with a connection for each. Enqueued by `batch_defer`."""

from __future__ import annotations

import sys

import stamps
from procrastinate import App, PsycopgConnector

app = App(connector=PsycopgConnector(conninfo=stamps.DATABASE_URL, max_size=stamps.AT_A_TIME + 4))


@app.task
async def noop() -> None:
    pass


@app.task
async def stamp(*, number: int) -> None:
    stamps.stamp(number)


if __name__ == "__main__":
    from with_procrastinate import app, noop, stamp  # so that the tasks are not called __main__

    with app.open():
        if sys.argv[1] == "enqueue":
            noop.batch_defer(*[{} for _ in range(stamps.how_many())])
        else:
            for number in stamps.paced():
                stamp.defer(number=number)
