# /// script
# [tool.crash]
# several = false
# rescue = "rescued at an age of 10 s (default 300 s), looked for every 2 s"
# worker = ["{bin}/oban", "start", "--dsn={database}", "--queues=default:4"]
# jobs = """
# select args->>'label',
#     case when state in ('available', 'scheduled', 'retryable') then 'waiting' when state = 'executing' then 'running'
#         when state = 'completed' then 'done' else 'dead' end,
#     attempt || '/' || max_attempts
# from oban_jobs"""
# ///
"""Oban for Python, run by its `oban start`, which reads oban.toml where it is started.

Its lifeline goes by a job's age alone, so `rescue_after` must be longer than the longest job: 10 s for jobs of 8 s.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import accident
from oban import Oban, worker
from oban.schema import install
from psycopg_pool import AsyncConnectionPool

CONFIGURATION = """
[lifeline]
interval = 2.0
rescue_after = 10.0
"""


@worker(queue="default", max_attempts=3)
class Work:
    async def process(self, job: Any) -> None:
        await accident.work_async(**job.args)

    def backoff(self, job: Any) -> int:  # noqa: ARG002  # it is given the job
        return 1


@worker(queue="default", max_attempts=3)
class Poison:
    async def process(self, job: Any) -> None:
        accident.poison(**job.args)

    def timeout(self, job: Any) -> int:  # noqa: ARG002
        return accident.POISON_LIMIT

    def backoff(self, job: Any) -> int:  # noqa: ARG002
        return 1


def configure() -> None:
    Path("oban.toml").write_text(CONFIGURATION, encoding="utf-8")


async def main(what: str) -> None:
    async with AsyncConnectionPool(accident.DATABASE_URL, open=False) as pool:
        if what == "setup":
            await install(pool)
            configure()
        else:
            oban = Oban(pool=pool)
            for payload in accident.payloads():
                await oban.enqueue((Poison if "way" in payload else Work).new(payload))


if __name__ == "__main__":
    import with_oban  # so that the workers are not called __main__

    asyncio.run(with_oban.main(sys.argv[1]))
