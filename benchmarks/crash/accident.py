"""What the jobs do, alike for all, and the log that they write of it, in which no queue has a hand.

A line a note: the clock, the process, the run, the job, what. A run is one call of `work` or `poison`, whoever made it.
"""

from __future__ import annotations

import asyncio
import collections
import ctypes
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

DATABASE_URL = os.environ["DATABASE_URL"]
LOG = os.environ["JOBS_LOG"]
TICK = 0.2
POISON_LIMIT = 5
"""Seconds: how long a poison may run, where a queue knows such a limit. An innocent job works for eight."""


class Run:
    """One run of a job. Its notes are single writes to a file: they survive whatever becomes of the process."""

    def __init__(self, label: str) -> None:
        self._head = f"{os.getpid()} {os.getpid()}.{time.monotonic_ns()} {label}"
        self.note("start")

    def note(self, what: str) -> None:
        """Write down that the run has come this far."""
        file = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        os.write(file, f"{time.time():.3f} {self._head} {what}\n".encode())
        os.close(file)


def work(label: str, ticks: int) -> None:
    """Be an innocent job. It counts its ticks, and does not look at the clock: frozen, it still has its work to do."""
    run = Run(label)
    for _ in range(ticks):
        time.sleep(TICK)
        run.note("tick")
    run.note("end")


async def work_async(label: str, ticks: int) -> None:
    """Be an innocent job where jobs are coroutines."""
    run = Run(label)
    for _ in range(ticks):
        await asyncio.sleep(TICK)
        run.note("tick")
    run.note("end")


def poison(label: str, way: str) -> None:
    """Be the job that goes wrong."""
    Run(label)
    if way == "exit":
        os._exit(1)
    if way == "segfault":
        ctypes.string_at(0)
    # A loop in C that holds the GIL, and in which Python looks at no signal.
    collections.deque(itertools.repeat(None), maxlen=0)


def payloads() -> Iterator[dict[str, Any]]:
    """Read the payloads to enqueue from the command line. Between them stands what to wait for: jobs that are well at work."""
    for one in json.loads(sys.argv[2]):
        if "after" in one:
            while not all(_ticks(label) >= one["ticks"] for label in one["after"]):
                time.sleep(0.05)
        else:
            yield one


def _ticks(label: str) -> int:
    try:
        with open(LOG, encoding="utf-8") as log:
            return sum(line.endswith(f" {label} tick\n") for line in log)
    except FileNotFoundError:
        return 0
