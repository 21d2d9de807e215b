"""What a job can leave in its process, by name."""

from __future__ import annotations

import contextvars
import faulthandler
import os
import resource
import signal
import socket
import threading
import time
from contextlib import suppress

BOUND = contextvars.ContextVar("BOUND", default="nothing")


def own_line() -> socket.socket:
    """Return a duplicate of the worker's line: the one descriptor that is a socket of two."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            found = socket.socket(fileno=os.dup(fd))
        except OSError:
            continue
        if found.family == socket.AF_UNIX and not found.getpeername() and not found.getsockname():
            return found
        found.close()
    raise LookupError("no line")


def open_all_that_can_be() -> None:
    """Open files until there is no descriptor left."""
    with suppress(OSError):
        while True:
            os.open("/dev/null", os.O_RDONLY)


LEAVES = {
    "nothing": lambda: None,
    "a thread": lambda: threading.Thread(target=time.sleep, args=(600,), daemon=True).start(),
    "a handler": lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "a handler for what its stacks are asked by": lambda: signal.signal(signal.SIGUSR1, signal.SIG_DFL),
    "faulthandler for a signal": lambda: faulthandler.register(signal.SIGUSR1, chain=False),
    "a time for faulthandler": lambda: faulthandler.dump_traceback_later(0.5, exit=True),
    "a mask": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2}),
    "a timer": lambda: signal.setitimer(signal.ITIMER_VIRTUAL, 100),
    "a directory": lambda: os.chdir("/"),
    "a umask": lambda: os.umask(0o077),
    "a limit": lambda: resource.setrlimit(resource.RLIMIT_CPU, (1000, 1000)),
    "niceness": lambda: os.nice(3),
    "a variable": lambda: os.environ.update(ADDED="by a job"),
    "no variables": os.environ.clear,
    "a context": lambda: BOUND.set("the job's tenant"),
    "no stdout": lambda: os.close(1),
    "another stderr": lambda: os.dup2(os.open("/dev/null", os.O_WRONLY), 2),
    "no descriptor free": open_all_that_can_be,
    "no descriptors": lambda: os.closerange(3, 65536),
    "a line that it wrote to": lambda: own_line().send(b"w"),
    "a line that it has shut down": lambda: own_line().shutdown(socket.SHUT_RDWR),
}
