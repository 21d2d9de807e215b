# /// script
# [tool.speed]
# manner = "batches"
# batches = "claims of half as many as it runs at a time; what has ended is written in batches"
# crash = "the claimed jobs, and those done whose end was not written yet, run again after 30 s"
# worker = ["{python}", "{adapter}", "worker", "{bin}/pgq"]
# left = "select count(*) from pgqueuer"
# ///
"""pgqueuer, run by its `pgq run`, coroutines in one process. What is done leaves the table.

It wants room for at least two batches: where one job at a time is asked for, it has two.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import stamps
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries


@asynccontextmanager
async def main() -> AsyncIterator[PgQueuer]:
    conn = await asyncpg.connect(stamps.DATABASE_URL)
    queue = PgQueuer(AsyncpgDriver(conn))

    @queue.entrypoint("noop")
    async def noop(job: Job) -> None:
        pass

    @queue.entrypoint("stamp")
    async def stamp(job: Job) -> None:
        stamps.stamp(**json.loads(job.payload))

    yield queue
    await conn.close()


async def by_hand(what: str) -> None:
    conn = await asyncpg.connect(stamps.DATABASE_URL)
    queries = Queries(AsyncpgDriver(conn))
    if what == "setup":
        await queries.install()
    elif what == "enqueue":
        count = stamps.how_many()
        await queries.enqueue(["noop"] * count, [None] * count, [0] * count)
    else:
        for number in stamps.paced():
            await queries.enqueue("stamp", json.dumps({"number": number}).encode())
    await conn.close()


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        batch = max(1, stamps.AT_A_TIME // 2)
        sizes = [f"--batch-size={batch}", f"--max-concurrent-tasks={max(2, stamps.AT_A_TIME)}"]
        os.execv(sys.argv[2], [sys.argv[2], "run", "with_pgqueuer:main", *sizes])
    asyncio.run(by_hand(sys.argv[1]))
