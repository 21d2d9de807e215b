# /// script
# [tool.crash]
# several = true
# rescue = "job heartbeat 10 s (off by default), sweep every 2 s (default 60 s)"
# setup = [["{bin}/werk", "migrate", "--dsn={database}"]]
# worker = ["{bin}/werk", "worker", "with_pgwerk:app", "--worker-type=fork", "--concurrency=4"]
# jobs = """
# select (payload #>> '{}')::jsonb->'kwargs'->>'label',
#     case when status in ('queued', 'scheduled', 'waiting') then 'waiting' when status in ('active', 'aborting') then 'running'
#         when status = 'complete' then 'done' else 'dead' end,
#     attempts || '/' || max_attempts
# from pgwerk._pgwerk_jobs"""
#
# [tool.crash.env]
# PGWERK_SWEEP_INTERVAL = "2"
# PGWERK_HEARTBEAT_INTERVAL = "2"
# PGWERK_POLL_INTERVAL = "1"
# ///
"""pgwerk, with its fork worker: of its workers the one that isolates jobs most."""

from __future__ import annotations

import asyncio

import accident
from pgwerk import Retry, Werk
from pgwerk.config import WerkConfig

app = Werk(accident.DATABASE_URL, config=WerkConfig.from_env())


def work(label: str, ticks: int) -> None:
    accident.work(label, ticks)


def poison(label: str, way: str) -> None:
    accident.poison(label, way)


async def send() -> None:
    async with app:
        for payload in accident.payloads():
            # A limit takes a job from a worker that still runs it: the innocent have none.
            limit = {"_timeout": accident.POISON_LIMIT} if "way" in payload else {}
            await app.enqueue(
                poison if "way" in payload else work, **payload, _retry=Retry(max=3, intervals=1), _heartbeat=10, **limit
            )


if __name__ == "__main__":
    import with_pgwerk  # so that the functions are not called __main__

    asyncio.run(with_pgwerk.send())
