"""Takes 60 MB as it is imported, and notes that it was, in a file of the working directory."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
from handlers_for_tests import marked

from fencepost import Job

with Path("imports").open("a", encoding="ascii") as file:
    file.write(f"{os.getpid()}\n")

LARGE = [bytes(1000) + bytes([number % 256]) for number in range(60_000)]
"""Many objects of Python: a collection that touches them copies their pages."""


@marked("tells_its_memory")
def tells_its_memory(job: Job, *, read: bool = False) -> dict[str, int]:
    """Return what this process takes for itself and what it has in all, in bytes. Read it before, if told to."""
    count = sum(len(part) for part in LARGE) if read else 0
    memory = psutil.Process().memory_full_info()
    return {"own": memory.uss, "proportional": memory.pss, "all": memory.rss, "count": count}
