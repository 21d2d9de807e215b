"""Where a worker's threads are: asked of Python first, and only then taken from C.

faulthandler reads frames from C, whoever holds the GIL, but crashes the process when it interrupts Python that just enters or
leaves a function (seen with 3.11: at 6 of 150 dumps of runs that were just being stopped, at 34 of 9,152 of one that computed).
A process that answers in Python is spared that; one that does not is held up in C, and its frames stand still.
"""

from __future__ import annotations

import asyncio
import os
import signal

from fencepost.board import boottime
from fencepost.supervisor.state import Child

FROM_PYTHON = signal.SIGUSR1
FROM_C = signal.SIGQUIT

ANSWERS_WITHIN = 0.15
"""Seconds that a run which is about to be killed gets to answer in Python, and then faulthandler to write."""

LIMIT = 64 * 1024
CRASH = "Fatal Python error: "
"""What faulthandler begins with when it was not asked."""

OURS = os.path.join("fencepost", "worker", "")
CALLERS = (os.path.join(OURS, "run.py"), os.path.join(OURS, "loop.py"))
"""What calls a job: below it nothing is the job's. Other code of ours may be called by it, its connection say."""


async def dumped(child: Child, within: float = ANSWERS_WITHIN, *, spare: bool = False) -> str | None:
    """Have the stacks written, and return them; None where they can't be had: blocked signals, or a stopped process.

    With `spare` they are taken from C only of a process that is surely held up there, and not of one that had no turn.
    """
    before = os.fstat(child.stacks).st_size
    for way in (FROM_PYTHON, FROM_C):
        if child.gone or status(child.pid) in STOPPED or not _has("SigCgt", child.pid, way):
            continue
        if spare and way is FROM_C and any(_has(set_, child.pid, FROM_PYTHON) for set_ in ("SigBlk", "SigPnd", "ShdPnd")):
            continue
        try:
            os.kill(child.pid, way)
        except OSError:
            continue
        if await _written(child, before, within):
            break
    return None if child.gone else stack_text(child.stacks, before)


async def _written(child: Child, before: int, within: float) -> bool:
    until = boottime() + within
    size = before
    while boottime() < until:
        await asyncio.sleep(0.02)
        if child.gone:
            return True
        now = os.fstat(child.stacks).st_size
        if now == size and now > before:
            return True
        size = now
    return size > before


def stack_text(fd: int, start: int = 0) -> str | None:
    """Return the stacks that were written behind `start`, or None."""
    text = os.pread(fd, LIMIT, start).decode(errors="replace").replace("\0", "").strip()
    return without_our_frames(text) or None


def crash_text(fd: int) -> str | None:
    """Return the stacks that a crash has left, or None. What was written before, for whoever asked, is of another time."""
    text = os.pread(fd, LIMIT, max(0, os.fstat(fd).st_size - LIMIT)).decode(errors="replace")
    _, found, of_crash = text.rpartition(CRASH)
    return without_our_frames((found + of_crash).strip()) or None if found else None


def without_our_frames(text: str) -> str:
    """Return the stacks of a dump, each down to the job's own code: what lies below it, and whole threads, may be ours."""
    stacks = []
    for stack in text.split("\n\n"):
        lines = []
        for line in stack.splitlines():
            if any(caller in line for caller in CALLERS):
                break
            if OURS not in line:
                lines.append(line)
        if len(lines) > 1 and f"{os.sep}psycopg_pool{os.sep}" not in stack:
            stacks.append("\n".join(lines))
    return "\n\n".join(stacks)


STOPPED = (b"T", b"t")


def status(pid: int) -> bytes:
    """Return the letter that the kernel has for what a process does; X for one that is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0]
    except OSError:
        return b"X"


def _has(set_: str, pid: int, number: signal.Signals) -> bool:
    """Whether a signal is in one of the kernel's sets for a process: caught (SigCgt), blocked (SigBlk), pending (SigPnd)."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            found = next(line for line in file if line.startswith(set_.encode()))
    except (OSError, StopIteration):
        return False
    return bool(int(found.split()[1], 16) >> (number - 1) & 1)
