"""Structured logs, one line an event, on stderr.

Invariant: writing a line never blocks. A log sink that no longer reads must not stop a heartbeat; lines that it does not
take are dropped, and how many is said once it takes lines again.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import structlog
from structlog.typing import EventDict

from fencepost.settings import Settings

PIECE = 4096
"""What a pipe that is writable at all takes at once without blocking (PIPE_BUF, pipe(7))."""


FIRST = ("time", "level", "event", "job", "kind", "attempt", "fence", "tenant", "outcome", "error")


@contextmanager
def from_the_background() -> Iterator[None]:
    """Write to a terminal although it is another's, and `stty tostop` says that only who is in front may.

    The kernel would send SIGTTOU in place of writing: we take that as one worker fewer, and the write, which is begun again, as
    the next. One that someone has sent meanwhile comes afterwards.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Sink:
    """Stderr, without ever waiting for whoever reads it."""

    def __init__(self) -> None:
        self._fd = 2
        self._dropped = 0
        self._cut = False

    def own_description(self) -> None:
        """Write to a pipe through a description of our own, that can be non-blocking without changing anyone else's.

        Only for a pipe: in a file the other writers would not see our offset. Where it can't be had, each piece asks first.
        """
        try:
            if stat.S_ISFIFO(os.fstat(2).st_mode):
                self._fd = os.open("/proc/self/fd/2", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            self._fd = 2

    def shared_description(self) -> None:
        """Go back to descriptor 2 itself: a worker closes what its supervisor had open."""
        self._fd = 2

    def write(self, text: str) -> None:
        """Write `text`, a whole line, or count it as dropped."""
        if self._dropped and self._try(f"fencepost: {self._dropped} log lines were dropped, stderr took none\n".encode()):
            self._dropped = 0
        if not self._try(text.encode(errors="replace")):
            self._dropped += 1

    def flush(self) -> None:
        """Nothing is kept back."""

    def _try(self, line: bytes) -> bool:
        # A line of which only the first pieces were taken must not run into this one.
        text = b"\n" + line if self._cut else line
        taken = 0
        try:
            ready = select.poll()
            ready.register(self._fd, select.POLLOUT)
            with from_the_background():
                while taken < len(text) and ready.poll(0):
                    taken += os.write(self._fd, text[taken : taken + PIECE])
        except OSError as error:
            # Full just now, or gone for good (EPIPE, EBADF, EIO): there is nowhere to say so.
            if error.errno == errno.EBADF:
                self._fd = 2
        if taken:
            self._cut = taken < len(text)
        return taken == len(text)


sink = Sink()


def _in_order(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Put first what a person looks for first."""
    return {**{key: event[key] for key in FIRST if key in event}, **event}


_run: ContextVar[dict[str, Any] | None] = ContextVar("fencepost_run", default=None)


class of_a_run:  # noqa: N801  # used as a function is
    """Have each line say so in between, the job's own too. As one variable: structlog would set one for each name."""

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def __enter__(self) -> None:
        """Say so from now on."""
        self._token = _run.set(self._fields)

    def __exit__(self, *_: object) -> None:
        """Say so no more."""
        _run.reset(self._token)


def _of_the_run(_logger: object, _method: str, event: EventDict) -> EventDict:
    return {**(_run.get() or {}), **event}


def configure(settings: Settings) -> None:
    """Send our events, and what jobs log through `logging`, to stderr as FENCEPOST_LOG_FORMAT and _LEVEL say."""
    console = settings.log_format == "console" or (not settings.log_format and sys.stderr is not None and os.isatty(2))
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        _of_the_run,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.UnicodeDecoder(),
    ]
    last: list[Any] = (
        [structlog.dev.ConsoleRenderer(colors=os.isatty(2), timestamp_key="time")]
        if console
        else [
            structlog.processors.format_exc_info,
            _in_order,
            structlog.processors.JSONRenderer(ensure_ascii=False, default=repr),
        ]
    )
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sink),  # type: ignore[arg-type]  # what it uses of a file is here
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sink)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last]
        )
    )
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(handler)
        root.setLevel(level)
    # The pool and the driver tell of each failed attempt; we tell once what is wrong, in our own words.
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
