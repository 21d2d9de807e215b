# /// script
# [tool.speed]
# manner = "batches"
# batches = "claims of as many as it has room for; what has ended is written in batches"
# crash = "the claimed jobs, and those done whose end was not written yet, run again after 300 s"
# worker = ["{bin}/oban", "start", "--dsn={database}", "--queues=default:{n}", "--pool-max-size=20"]
# left = "select count(*) from oban_jobs where state <> 'completed'"
# pace = 0.4
# ///
"""Oban for Python, run by its `oban start`, coroutines in one process. Enqueued by `enqueue_many`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import stamps
from oban import Oban, worker
from oban.schema import install
from psycopg_pool import AsyncConnectionPool


@worker(queue="default")
class Noop:
    async def process(self, job: Any) -> None:
        pass


@worker(queue="default")
class Stamp:
    async def process(self, job: Any) -> None:
        stamps.stamp(**job.args)


async def main(what: str) -> None:
    async with AsyncConnectionPool(stamps.DATABASE_URL, open=False) as pool:
        if what == "setup":
            await install(pool)
            return
        oban = Oban(pool=pool)
        if what == "enqueue":
            for size in _thousands(stamps.how_many()):
                await oban.enqueue_many([Noop.new({}) for _ in range(size)])
        else:
            for number in stamps.paced():
                await oban.enqueue(Stamp.new({"number": number}))


def _thousands(count: int) -> list[int]:
    return [min(1000, count - done) for done in range(0, count, 1000)]


if __name__ == "__main__":
    import with_oban  # so that the workers are not called __main__

    asyncio.run(with_oban.main(sys.argv[1]))
