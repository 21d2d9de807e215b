"""The threads of this process, which a fork does not copy, only what they have locked."""

from __future__ import annotations

import os
import threading


def threads_beside() -> list[str]:
    """Return the names of all threads but the main one, also of those that Python has not made."""
    known = {thread.native_id: thread.name for thread in threading.enumerate()}
    others = [int(task) for task in os.listdir("/proc/self/task") if int(task) != os.getpid()]
    return sorted(known.get(task, f"{_name(task)}, not of Python's making") for task in others)


def started_threads() -> tuple[str, str] | None:
    """Return why the handlers can't be preloaded, and the cure, if importing them has started threads."""
    if not (threads := threads_beside()):
        return None
    what = (
        f"FENCEPOST_PRELOAD=yes can't be, since importing the handlers started threads ({', '.join(threads)}), and a fork "
        "copies what they have locked, but not them"
    )
    return what, "start them in a handler, or set FENCEPOST_PRELOAD=no"


def _name(task: int) -> str:
    try:
        with open(f"/proc/self/task/{task}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "gone meanwhile"
