"""From enqueuing a job to its first line of code, on a supervisor that idles.

The moment before the enqueue call is the enqueuer's, the other one the handler's: both of the machine's one monotonic clock.
The handler tells it by a datagram, so that nothing is waited for that belongs to no job.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from fencepost import enqueue
from fencepost.jobs.migrate import migrate

HANDLERS = """
import os, socket, time
from fencepost import handler

told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

@handler("starts", tenantless=True)
def starts(job):
    told.sendto(str(time.perf_counter()).encode(), os.environ["LATENCY_TOLD_AT"])
"""

PAUSE = (0.08, 0.16)
"""Seconds between two enqueues, at random: what followed the one before is over, and no period is met each time."""

UNMEASURED = 20
"""Jobs before the first that counts: connections are opened and statements prepared."""


def measure(url: str, *, jobs: int = 300, workers: int = 4) -> dict[str, float]:
    """Return p50, p90, p99 and the worst in milliseconds, of `jobs` enqueued one by one in the database at `url`."""
    with psycopg.connect(url, autocommit=True) as conn:
        migrate(conn, "fencepost")
    with _supervisor(url, workers) as told, psycopg.connect(url) as conn:
        took = sorted([_once(conn, told) for _ in range(UNMEASURED + jobs)][UNMEASURED:])
    cuts = statistics.quantiles(took, n=100)
    return {name: round(seconds * 1000, 3) for name, seconds in
            {"p50": cuts[49], "p90": cuts[89], "p99": cuts[98], "max": took[-1]}.items()}  # fmt: skip


def _once(conn: psycopg.Connection[tuple[object, ...]], told: socket.socket) -> float:
    time.sleep(random.uniform(*PAUSE))
    began = time.perf_counter()
    enqueue(conn, "starts", tenant=None)
    conn.commit()
    return float(told.recv(100)) - began


@contextmanager
def _supervisor(url: str, workers: int) -> Iterator[socket.socket]:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(f"{folder}/told")
        told.settimeout(30)
        Path(folder, "handlers_of_latency.py").write_text(HANDLERS, encoding="utf-8")
        environment = {
            **os.environ, "DATABASE_URL": url, "FENCEPOST_HANDLERS": "handlers_of_latency", "LATENCY_TOLD_AT": f"{folder}/told",
            "FENCEPOST_CONCURRENCY": str(workers), "FENCEPOST_ALLOW_BYPASSRLS": "yes", "FENCEPOST_LOG_LEVEL": "warning",
        }  # fmt: skip
        process = subprocess.Popen([sys.executable, "-m", "fencepost", "run"], cwd=folder, env=environment)
        try:
            yield told
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


if __name__ == "__main__":
    print(measure(os.environ["DATABASE_URL"]))
