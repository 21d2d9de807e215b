"""Handlers for what a job can leave in its process, and one that looks what is there."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
from handlers_for_tests import mark, marked
from ways_to_leave_something import BOUND, LEAVES

from fencepost import Job

kept: list[bytearray] = []
"""What jobs have allocated and not given back."""


@marked("looks")
def looks(job: Job) -> dict[str, Any]:
    """Return what a job finds in its process."""
    return {
        "directory": os.getcwd(),
        "umask": os.umask(0o022),
        "mask": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
        "handlers": [str(signal.getsignal(number)).partition(" at ")[0] for number in sorted(signal.valid_signals())],
        "timers": [signal.getitimer(timer)[0] for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)],
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "children": len(psutil.Process().children()),
        "environment": sorted(name for name in os.environ if name not in ("FENCEPOST_WORKER", "PGAPPNAME")),
        "limits": [
            list(resource.getrlimit(limit)) for limit in (resource.RLIMIT_CORE, resource.RLIMIT_NOFILE, resource.RLIMIT_CPU)
        ],
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
        "bound": BOUND.get(),
        "open": [fd for fd in range(3) if os.path.exists(f"/proc/self/fd/{fd}")],
    }


@marked("leaves")
def leaves(job: Job, *, what: str) -> None:
    """Leave something, as `LEAVES` says."""
    LEAVES[what]()


@marked("grows")
def grows(job: Job, *, megabytes: int, seconds: float = 0.0) -> int:
    """Take memory, in steps, and keep it; then go on for a while. Return the process' id."""
    for _ in range(megabytes):
        kept.append(bytearray(os.urandom(1024) * 1024))
        time.sleep(0.001)
    mark(job, "grown")
    time.sleep(seconds)
    return os.getpid()


@marked("tells_its_process")
def tells_its_process(job: Job) -> int:
    """Return the process' id."""
    return os.getpid()


@marked("spins_for")
def spins_for(job: Job, *, seconds: float) -> int:
    """Enter and leave functions of Python, without a pause, and return how often."""
    until = time.monotonic() + seconds
    return sum(_spin() for _ in _steps(until))


def _steps(until: float) -> Iterator[int]:
    while time.monotonic() < until:
        yield from range(1000)


def _spin() -> int:
    return sys.intern("x").count("x")
