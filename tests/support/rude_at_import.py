"""Changes what it can of the process that imports it: none of it may reach the supervisor, nor the worker's own work."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import os
import signal
import socket
import sys
import threading
import time
from functools import wraps
from pathlib import Path
from typing import Any

import structlog
from handlers_for_tests import mark, marked

from fencepost import Job, handler

LOG = Path("app.log").open("a", buffering=1, encoding="utf-8")  # noqa: SIM115
TENANT: contextvars.ContextVar[str | None] = contextvars.ContextVar("TENANT", default=None)


class NoPolicy(asyncio.DefaultEventLoopPolicy):
    """Makes loops that can't be made."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Refuse."""
        raise RuntimeError("no loop for you")


if os.environ.get("FENCEPOST_PRELOAD") == "yes":
    asyncio.set_event_loop_policy(NoPolicy())
    atexit.register(time.sleep, 30)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.001)
    socket.setdefaulttimeout(3)
    structlog.configure(processors=[structlog.processors.KeyValueRenderer()])


@marked("logs_to_its_file")
def logs_to_its_file(job: Job) -> int:
    """Write a line into the file that was opened at import."""
    LOG.write(f"job {job.id}\n")
    with job.transaction() as conn:
        conn.execute("select 1")
    return os.getpid()


@marked("closes_what_it_can")
def closes_what_it_can(job: Job) -> None:
    """Close descriptors, the worker's line among them, and go on for a while."""
    os.closerange(3, 65536)
    time.sleep(2)


class NeverFlushed:
    """A stream that nobody reads."""

    def write(self, text: str) -> int:
        """Take it."""
        return len(text)

    def flush(self) -> None:
        """Wait for ever."""
        threading.Event().wait()


@marked("leaves_what_is_never_flushed")
def leaves_what_is_never_flushed(job: Job) -> None:
    """Put a stream that nobody reads in the place of stdout."""
    sys.stdout = NeverFlushed()  # type: ignore[assignment]


def with_tenant(function: Any) -> Any:
    """Bind the job's tenant to a context variable, as an application may."""

    @wraps(function)
    def run(job: Job, **payload: Any) -> Any:
        TENANT.set(job.tenant)
        return function(job, **payload)

    return run


@handler("tells_its_tenant")
@with_tenant
def tells_its_tenant(job: Job) -> str | None:
    """Return what is bound."""
    return TENANT.get()


@handler("tells_its_tenant_async")
@with_tenant
async def tells_its_tenant_async(job: Job) -> str | None:
    """Return what is bound."""
    return TENANT.get()


@handler("tells_any_tenant")
def tells_any_tenant(job: Job) -> str | None:
    """Return what an earlier job has bound."""
    return TENANT.get()


@marked("waits_without_descriptors")
def waits_without_descriptors(job: Job, *, seconds: float) -> None:
    """Close descriptors, and wait."""
    os.closerange(3, 65536)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.01)


@marked("exits_without_a_word")
def exits_without_a_word(job: Job) -> None:
    """Leave the process."""
    mark(job, "before the exit")
    os._exit(3)
