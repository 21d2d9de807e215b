"""Handlers that die, or are about to end, at a moment that a test has chosen."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

from handlers_for_tests import insert_row, mark, marked

from fencepost import Job


def wait_for(path: str) -> None:
    """Wait until a file is there."""
    while not Path(path).exists():
        time.sleep(0.01)


@marked("commits_and_dies")
def commits_and_dies(job: Job) -> None:
    """Commit a row; at the first attempt, die of it."""
    with job.transaction() as conn:
        insert_row(conn, job)
    if job.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@marked("writes_once_and_dies", transaction=True)
def writes_once_and_dies(job: Job) -> None:
    """Write a row in the one transaction; at the first attempt, die at its end."""
    insert_row(job.conn, job)
    if job.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@marked("ends_when_told")
def ends_when_told(job: Job, *, path: str) -> None:
    """Return once the file is there."""
    wait_for(path)


@marked("writes_once_when_told", transaction=True)
def writes_once_when_told(job: Job, *, path: str) -> None:
    """Write a row in the one transaction, and return once the file is there."""
    insert_row(job.conn, job)
    wait_for(path)


@marked("dies_and_leaves_a_copy")
def dies_and_leaves_a_copy(job: Job) -> None:
    """Leave a copy in a session of its own, that holds every descriptor of this process, and die."""
    told, tell = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.write(tell, b"x")
        time.sleep(600)
        os._exit(0)
    os.read(told, 1)
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    mark(job, f"copy {children.split()[0]}")
    os.kill(os.getpid(), signal.SIGKILL)


@marked("kills_its_supervisor")
def kills_its_supervisor(job: Job) -> None:
    """Take everything with it, as a container does that is killed for its memory."""
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)


@marked("tells_what_is_blocked")
def tells_what_is_blocked(job: Job) -> dict[str, str]:
    """Return the masks of blocked signals: of this process, of a thread of its, and of a program that it starts."""
    masks = {"here": _blocked(Path("/proc/thread-self/status").read_text(encoding="ascii"))}
    thread = threading.Thread(
        target=lambda: masks.update(thread=_blocked(Path("/proc/thread-self/status").read_text(encoding="ascii")))
    )
    thread.start()
    thread.join()
    masks["program"] = _blocked(subprocess.check_output(["cat", "/proc/self/status"], text=True))
    return masks


def _blocked(status: str) -> str:
    return next(line for line in status.splitlines() if line.startswith("SigBlk")).split()[1].strip("0")
