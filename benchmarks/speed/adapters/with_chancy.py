# /// script
# [tool.speed]
# manner = "a process a job"
# batches = "claims of as many as it has room for; what has ended is written once a second"
# crash = "the running jobs, and those that ended in the last second, run again after 90 s"
# worker = ["{python}", "{adapter}", "worker"]
# left = "select count(*) from chancy_jobs where state <> 'succeeded'"
# pace = 0.1
# ///
"""chancy, with its process executor: a job in a process of a pool, as many as are asked for.

It polls eagerly, as its documentation has it for many short jobs: else it takes as many as it has room for, each five seconds.
"""

from __future__ import annotations

import asyncio
import sys

import stamps
from chancy import Chancy, Queue, Worker, job
from chancy.plugins.leadership import Leadership
from chancy.plugins.recovery import Recovery

chancy = Chancy(stamps.DATABASE_URL, plugins=[Leadership(), Recovery()])


@job()
def noop() -> None:
    pass


@job()
def stamp(*, number: int) -> None:
    stamps.stamp(number)


async def main(what: str) -> None:
    async with chancy:
        if what == "setup":
            await chancy.migrate()
        elif what == "enqueue":
            async for _ in chancy.push_many([noop.job] * stamps.how_many()):
                pass
        elif what == "worker":
            executor = Chancy.Executor.Process
            queue = Queue("default", concurrency=stamps.AT_A_TIME, executor=executor, eager_polling=True)
            await chancy.declare(queue, upsert=True)
            async with Worker(chancy) as worker:
                await worker.wait_for_shutdown()
        else:
            for number in stamps.paced():
                await chancy.push(stamp.job.with_kwargs(number=number))


if __name__ == "__main__":
    import with_chancy  # so that the jobs are not called __main__

    asyncio.run(with_chancy.main(sys.argv[1]))
