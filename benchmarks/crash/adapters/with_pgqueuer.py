# /// script
# [tool.crash]
# several = false
# rescue = "heartbeat timeout 10 s (default 30 s)"
# worker = ["{bin}/pgq", "run", "with_pgqueuer:main", "--max-concurrent-tasks=4", "--batch-size=2",
#     "--heartbeat-timeout=10", "--dequeue-timeout=2"]
# jobs = """
# select convert_from(payload, 'UTF8')::jsonb->>'label',
#     case status when 'queued' then 'waiting' when 'picked' then 'running' else 'dead' end, attempts::text
# from pgqueuer"""
# ///
"""pgqueuer, run by its `pgq run`. A job that is done, or has failed for good, leaves the table.

The newest typer breaks that command, so the one before is pinned. Attempts are kept by its retrying executor, three here.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import accident
import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.executors import DatabaseRetryEntrypointExecutor
from pgqueuer.models import Job
from pgqueuer.queries import Queries


def thrice(parameters: object) -> DatabaseRetryEntrypointExecutor:
    return DatabaseRetryEntrypointExecutor(parameters=parameters, max_attempts=3, initial_delay=timedelta(seconds=1))


@asynccontextmanager
async def main() -> AsyncIterator[PgQueuer]:
    conn = await asyncpg.connect(accident.DATABASE_URL)
    queue = PgQueuer(AsyncpgDriver(conn))

    @queue.entrypoint("work", executor_factory=thrice)
    async def work(job: Job) -> None:
        await accident.work_async(**json.loads(job.payload))

    @queue.entrypoint("poison", executor_factory=thrice, on_failure="hold")
    async def poison(job: Job) -> None:
        accident.poison(**json.loads(job.payload))

    yield queue
    await conn.close()


async def by_hand(what: str) -> None:
    conn = await asyncpg.connect(accident.DATABASE_URL)
    queries = Queries(AsyncpgDriver(conn))
    if what == "setup":
        await queries.install()
    else:
        for payload in accident.payloads():
            await queries.enqueue("poison" if "way" in payload else "work", json.dumps(payload).encode())
    await conn.close()


if __name__ == "__main__":
    asyncio.run(by_hand(sys.argv[1]))
