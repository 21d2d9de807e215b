"""What must not be in a process that is forked, when handlers were imported in it.

A fork copies locks, but not the threads that hold them. A socket, or a pipe, would be the same one in every worker. Files are
fine: each line that is appended goes where it should, whoever writes it.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterable

CURE = "do that in a handler, when it is first called, or set FENCEPOST_PRELOAD=no"


def threads_beside() -> list[str]:
    """Return the names of all threads of this process but the main one, also of those that Python has not made."""
    known = {thread.native_id: thread.name for thread in threading.enumerate()}
    others = [int(task) for task in os.listdir("/proc/self/task") if int(task) != os.getpid()]
    return sorted(known.get(task, f"{_name(task)}, not of Python's making") for task in others)


def descriptors() -> set[int]:
    """Return the numbers of all that is open here."""
    return {fd for fd in map(int, os.listdir("/proc/self/fd")) if _type(fd) is not None}


def cannot_be_forked(opened: Iterable[int]) -> tuple[str, str] | None:
    """Return what keeps this process from being forked, and the cure. `opened` are descriptors that imports have opened."""
    if threads := threads_beside():
        what = f"importing the handlers started threads ({', '.join(threads)}), but a fork copies only what they have locked"
    elif shared := sorted(_target(fd) for fd in opened if _type(fd) not in (stat.S_IFREG, stat.S_IFCHR, stat.S_IFDIR)):
        what = f"importing the handlers opened what workers can't share ({', '.join(shared)})"
    else:
        return None
    return f"FENCEPOST_PRELOAD=yes can't be: {what}", CURE


def _name(task: int) -> str:
    try:
        with open(f"/proc/self/task/{task}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "gone meanwhile"


def _type(fd: int) -> int | None:
    try:
        return stat.S_IFMT(os.fstat(fd).st_mode)
    except OSError:
        return None


def _target(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return f"descriptor {fd}"
