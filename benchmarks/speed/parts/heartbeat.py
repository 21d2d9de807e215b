"""A heartbeat for a thousand running jobs, and an hour's worth of them. The rows are simulated, the statement is real."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import psycopg

from fencepost.jobs.heartbeat import Beat, heartbeat
from speed.lab import Facts, Lab
from speed.page import number, spread, table

RUNNING = 1000
BEATS, A_MINUTE = 240, 4
"""An hour's worth, one each 15 s; and after how many of them autovacuum looks whether it is needed, by default."""

START = """
update fencepost.jobs set status = 'running', attempts = 1, max_attempts = 5, fence = 1, locked_by = 'bench.' || id,
    locked_until = clock_timestamp() + interval '60 s', started_at = clock_timestamp()
returning id, fence, locked_by"""
SIZE = "select pg_table_size('fencepost.jobs')"
CALLS = """
select coalesce(sum(calls), 0)::int from pg_stat_statements
where dbid = (select oid from pg_database where datname = %s) and query like '%%with beat as materialized%%'"""


def measure(lab: Lab) -> Facts:
    """Beat."""
    with lab.place(lab.peer("fencepost"), RUNNING) as place, psycopg.connect(lab.server.url(), autocommit=True) as conn:
        conn.execute("create extension if not exists pg_stat_statements")
        conn.execute("alter database run_fencepost set pg_stat_statements.track = 'top'")
        with psycopg.connect(place.database, autocommit=True) as owner:
            beats = [Beat(job, fence, name, None) for job, fence, name in owner.execute(START)]
        # The first beats find pages as the many rows that began at once have left them, which runs never do.
        asyncio.run(_beat(place.database, beats, A_MINUTE))
        before = place.ask(SIZE)
        conn.execute("select pg_stat_statements_reset()")
        took = asyncio.run(_beat(place.database, beats, BEATS))
        row = conn.execute(CALLS, ["run_fencepost"]).fetchone()
        calls = row[0] if row else 0
        grown = place.ask(SIZE) / before
    return {"running": len(beats), "beats": BEATS, "statements": calls / BEATS, "ms": took, "grown": grown}


async def _beat(database: str, beats: list[Beat], times: int) -> list[float]:
    took = []
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        for number in range(times):
            if number % A_MINUTE == 0:
                await conn.execute("vacuum fencepost.jobs")
            began = time.perf_counter()
            answers = await heartbeat(conn, "fencepost", beats, timedelta(seconds=60))
            took.append((time.perf_counter() - began) * 1000)
            assert len(answers) == len(beats)
            assert all(answer.state == "renewed" for answer in answers.values())
    return took


def tell(facts: Facts) -> str:
    """Tell of it."""
    return table(
        ["running jobs", "statements a beat", "a beat, ms", f"the table after {facts['beats']} beats"],
        [
            [
                number(facts["running"]),
                number(facts["statements"]),
                spread(facts["ms"]),
                f"{facts['grown']:.2f} times as large",
            ]
        ],
    )
