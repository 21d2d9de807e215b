"""A worker is killed in the middle of a job, with another one waiting: how long until its slot runs that."""

from __future__ import annotations

import os
import signal
import statistics
import time
from subprocess import Popen

import psycopg
from peers.processes import tree

from fencepost import enqueue
from speed.lab import Facts, Lab, Place
from speed.page import number, table

REPETITIONS = 30
WAYS = {"preloaded": "yes", "not preloaded": "no"}


def measure(lab: Lab) -> Facts:
    """Kill a worker again and again, with its handlers preloaded and without."""
    return {"ms": {way: _killed(lab, preload) for way, preload in WAYS.items()}}


def _killed(lab: Lab, preload: str) -> list[float]:
    with lab.place(lab.peer("fencepost")) as place, place.working(1, FENCEPOST_PRELOAD=preload) as main:
        return [_once(place, main, number) for number in range(0, 2 * REPETITIONS, 2)]


def _once(place: Place, main: Popen[bytes], number: int) -> float:
    with psycopg.connect(place.database) as conn:
        enqueue(conn, "hang", {"number": number}, tenant=1)
        enqueue(conn, "stamp", {"number": number + 1}, tenant=1)
    place.wait(lambda: number in place.stamps(), "a job's start")
    worker = next(process for process in tree(main) if "fencepost: worker" in " ".join(process.cmdline()))
    killed_at = time.monotonic_ns()
    os.kill(worker.pid, signal.SIGKILL)
    place.wait(lambda: number + 1 in place.stamps(), "the next job's start", every=0.01)
    return (place.stamps()[number + 1] - killed_at) / 1e6


def tell(facts: Facts) -> str:
    """Tell of it."""
    rows = [[way, number(statistics.median(ms)), number(min(ms)), number(max(ms))] for way, ms in facts["ms"].items()]
    return table(["handlers", "median, ms", "least", "most"], rows)
