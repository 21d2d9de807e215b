# /// script
# [tool.crash]
# several = true
# rescue = "heartbeat timeout 10 s (default 90 s), recovery every 3 s (default 60 s)"
# worker = ["{python}", "{adapter}", "worker"]
# jobs = """
# select kwargs->>'label',
#     case state when 'succeeded' then 'done' when 'failed' then 'dead' when 'running' then 'running' else 'waiting' end,
#     attempts || '/' || max_attempts
# from chancy_jobs"""
# ///
"""chancy, with its process executor: of its executors the one that isolates jobs most.

Its recovery raises a job's max attempts by one, by intention.
"""

from __future__ import annotations

import asyncio
import sys

import accident
from chancy import Chancy, Limit, Queue, Worker, job
from chancy.plugins.leadership import Leadership
from chancy.plugins.recovery import Recovery

chancy = Chancy(accident.DATABASE_URL, plugins=[Leadership(poll_interval=2, timeout=6), Recovery(poll_interval=3)])


@job(max_attempts=3)
def work(*, label: str, ticks: int) -> None:
    accident.work(label, ticks)


@job(max_attempts=3)
def poison(*, label: str, way: str) -> None:
    accident.poison(label, way)


async def main(what: str) -> None:
    async with chancy:
        if what == "setup":
            await chancy.migrate()
            queue = Queue("default", concurrency=4, executor=Chancy.Executor.Process, polling_interval=1)
            await chancy.declare(queue, upsert=True)
        elif what == "worker":
            async with Worker(chancy, heartbeat_poll_interval=2, heartbeat_timeout=10) as worker:
                await worker.wait_for_shutdown()
        else:
            for payload in accident.payloads():
                one = (poison if "way" in payload else work).job.with_kwargs(**payload)
                if "way" in payload:
                    one = one.with_limits([Limit(Limit.Type.TIME, accident.POISON_LIMIT)])
                await chancy.push(one)


if __name__ == "__main__":
    import with_chancy  # so that the jobs are not called __main__

    asyncio.run(with_chancy.main(sys.argv[1]))
