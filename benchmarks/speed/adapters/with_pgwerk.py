# /// script
# [tool.speed]
# manner = "a process a job"
# batches = "claims of as many as it has room for; acknowledges each"
# crash = "the running jobs, for ever, unless they are given heartbeats, which are off by default"
# setup = [["{bin}/werk", "migrate", "--dsn={database}"]]
# worker = ["{bin}/werk", "worker", "with_pgwerk:app", "--worker-type=fork", "--concurrency={n}"]
# left = "select count(*) from pgwerk._pgwerk_jobs where status <> 'complete'"
# pace = 0.005
# latency = false
# ///
"""pgwerk, with its fork worker, which spawns a process a job, as many at a time as are asked for."""

from __future__ import annotations

import asyncio
import sys

import stamps
from pgwerk import Werk
from pgwerk.config import WerkConfig
from pgwerk.schemas import EnqueueParams

app = Werk(stamps.DATABASE_URL, config=WerkConfig.from_env())


def noop() -> None:
    pass


def stamp(number: int) -> None:
    stamps.stamp(number)


async def main(what: str) -> None:
    async with app:
        if what == "enqueue":
            await app.enqueue_many([EnqueueParams(noop) for _ in range(stamps.how_many())])
        else:
            for number in stamps.paced():
                await app.enqueue(stamp, number=number)


if __name__ == "__main__":
    import with_pgwerk  # so that the functions are not called __main__

    asyncio.run(with_pgwerk.main(sys.argv[1]))
