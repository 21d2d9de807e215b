"""What a job leaves behind in its process.

A thread or a program of one job must not be there for the next: it could hold the earlier job's data, its connection or the
worker's line. Nothing of that kind can be ended safely from inside, so the worker leaves, and the supervisor ends the group.

Known gap: a thread that no Python code runs in (a library's pool) is not seen.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Footprint:
    """What is in the process: threads that run Python, and which files stand behind the worker's own descriptors."""

    threads: frozenset[int]
    descriptors: tuple[tuple[int, int] | None, ...]


def footprint(descriptors: tuple[int, ...]) -> Footprint:
    """Return what is there now; `descriptors` are the worker's own."""
    return Footprint(frozenset(sys._current_frames()), tuple(_identity(fd) for fd in descriptors))


def left_behind(before: Footprint, after: Footprint) -> list[str]:
    """Return in words what the job between the two has left, and what it took away."""
    found = []
    if threads := len(after.threads - before.threads):
        found.append(f"{threads} thread" + "s" * (threads > 1))
    if before.descriptors != after.descriptors:
        found.append("the worker's own descriptors closed or replaced")
    if _has_living_children():
        found.append("a program that still runs")
    return found


def _identity(fd: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _has_living_children() -> bool:
    """Reap what has ended; tell whether anything has not."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            return False
        if ended is None:
            return True
