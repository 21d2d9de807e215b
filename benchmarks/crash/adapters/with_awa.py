# /// script
# [tool.crash]
# several = false
# rescue = "heartbeat stale after 10 s (default 90 s), looked for every 2 s (default 30 s)"
# setup = [["{python}", "-m", "awa", "--database-url={database}", "migrate"]]
# worker = ["{python}", "{adapter}", "worker"]
# jobs = """
# select args->>'label',
#     case when state in ('available', 'scheduled', 'retryable') then 'waiting' when state = 'running' then 'running'
#         when state = 'completed' then 'done' else 'dead' end,
#     attempt || '/' || max_attempts
# from awa.jobs"""
# ///
"""awa, its Rust runtime driving asyncio tasks, with a deadline for the queue of poisons only."""

from __future__ import annotations

import asyncio
import signal
import sys
from dataclasses import dataclass

import accident
import awa


@dataclass
class Work:
    label: str = ""
    ticks: int = 0


@dataclass
class Poison:
    label: str = ""
    way: str = ""


async def run(client: awa.AsyncClient) -> None:
    @client.task(Work, queue="work")
    async def work(job: awa.Job) -> None:
        await accident.work_async(job.args.label, job.args.ticks)

    @client.task(Poison, queue="poison")
    async def poison(job: awa.Job) -> None:
        accident.poison(job.args.label, job.args.way)

    await client.start(
        [
            {"name": "work", "max_workers": 4, "deadline_duration_ms": 60_000},
            {"name": "poison", "max_workers": 4, "deadline_duration_ms": accident.POISON_LIMIT * 1000},
        ],
        heartbeat_interval_ms=2000,
        heartbeat_staleness_ms=10_000,
        heartbeat_rescue_interval_ms=2000,
        deadline_rescue_interval_ms=2000,
        promote_interval_ms=250,
        leader_election_interval_ms=2000,
    )
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    await client.shutdown()


async def main(what: str) -> None:
    client = awa.AsyncClient(accident.DATABASE_URL)
    if what == "worker":
        await run(client)
    else:
        for payload in accident.payloads():
            if "way" in payload:
                await client.insert(Poison(**payload), queue="poison", max_attempts=3)
            else:
                await client.insert(Work(**payload), queue="work", max_attempts=3)
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
