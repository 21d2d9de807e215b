"""What the jobs do, alike for all, and when: read from a clock that all processes of the machine share."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Iterator

DATABASE_URL = os.environ["DATABASE_URL"]
LOG = os.environ["JOBS_LOG"]
AT_A_TIME = int(os.environ.get("AT_A_TIME", "1"))
PAUSE = (0.05, 0.1)
"""Seconds between two jobs, at random: each meets an idle worker, and not always the same moment of its polls."""


def how_many() -> int:
    """Return how many jobs to enqueue: the command line's second word."""
    return int(sys.argv[2])


def stamp(number: int) -> None:
    """Be a job that notes when it starts."""
    at = time.monotonic_ns()
    file = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(file, f"{number} {at}\n".encode())
    os.close(file)


def paced() -> Iterator[int]:
    """Give the numbers of the jobs to enqueue, one at a time, and print when each was given: the enqueue call comes after."""
    given = []
    for number in range(how_many()):
        given.append(time.monotonic_ns())
        yield number
        time.sleep(random.uniform(*PAUSE))
    print(json.dumps(given))
