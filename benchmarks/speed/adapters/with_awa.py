# /// script
# [tool.speed]
# manner = "batches"
# batches = "claims of as many as it has room for; what has ended is written in batches"
# crash = "the claimed jobs, and those done whose end was not written yet, run again after 90 s"
# setup = [["{python}", "-m", "awa", "--database-url={database}", "migrate"], ["{python}", "{adapter}", "setup"]]
# worker = ["{python}", "{adapter}", "worker"]
# left = """
# select (select count(*) from awa.ready_entries)
#     - (select coalesce(sum(completed_count), 0) from awa.receipt_completion_batches)"""
# pace = 0.3
# ///
"""awa, its Rust runtime driving asyncio tasks. Enqueued by `enqueue_many_copy`.

A new installation takes to its newer storage when a first worker starts and no job is there yet: the set-up has one do so.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass

import awa
import stamps


@dataclass
class Noop:
    pass


@dataclass
class Stamp:
    number: int = 0


async def start(client: awa.AsyncClient) -> None:
    @client.task(Noop, queue="default")
    async def noop(job: awa.Job) -> None:
        pass

    @client.task(Stamp, queue="default")
    async def stamp(job: awa.Job) -> None:
        stamps.stamp(job.args.number)

    await client.start([{"name": "default", "max_workers": stamps.AT_A_TIME}])


async def main(what: str) -> None:
    client = awa.AsyncClient(stamps.DATABASE_URL)
    if what == "setup":
        await start(client)
        while json.loads(await client.storage_status())["state"] != "active":  # noqa: ASYNC110  # it tells of no event
            await asyncio.sleep(0.1)
        await client.shutdown()
    elif what == "worker":
        await start(client)
        await asyncio.Event().wait()
    elif what == "enqueue":
        await client.enqueue_many_copy([Noop() for _ in range(stamps.how_many())])
    else:
        for number in stamps.paced():
            await client.insert(Stamp(number))
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
