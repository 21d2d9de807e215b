"""Handlers that need more than their container has."""

from __future__ import annotations

import os
import time
from pathlib import Path

from handlers_for_tests import marked

from fencepost import Job

PIECE = 4 * 1024 * 1024


@marked("eats_memory")
def eats_memory(job: Job, *, once: str) -> None:
    """Take memory without end, once the file is there."""
    while not Path(once).exists():
        time.sleep(0.01)
    eaten = []
    while True:
        eaten.append(b"x" * PIECE)


@marked("tells_what_it_lacks")
def tells_what_it_lacks(job: Job) -> list[str]:
    """Return what can't be done here."""
    lacking = []
    for folder in ("/", os.getcwd(), "/dev/shm"):
        try:
            file = Path(folder, f"fencepost-{job.id}")
            file.touch()
            file.unlink()
        except OSError as error:
            lacking.append(f"{folder}: {error.strerror}")
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        lacking.append(f"pidfd_open: {error.strerror}")
    return lacking
