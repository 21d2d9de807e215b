"""The one place that forks: each step with its reason.

The supervisor's memory, descriptors, signals and event loop are all there in the child at first. What follows makes them
harmless before anything else runs, in this order. A child never unwinds into the stack below it.

The only imports of a worker's code by the supervisor are here: the child's, and with FENCEPOST_PRELOAD one before all forks.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import select
import signal
import sys
from dataclasses import dataclass, field
from typing import Any, NoReturn

import structlog

from fencepost.forkable import cannot_be_forked, descriptors, threads_beside
from fencepost.logs import from_the_background
from fencepost.settings import Settings
from fencepost.start import WorkerStart

log = structlog.get_logger()

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
OOM_SCORE_RAISED_BY = 300
LOST_ITS_PARENT = 71
CANNOT_START = 70
REFUSED = 78

# Loaded before any fork: the child should not have to look for libraries.
_libc = ctypes.CDLL(None, use_errno=True)
_threads_told: set[str] = set()


@dataclass(slots=True)
class Preloaded:
    """What importing the handlers here has left that is for the workers: open files, whose numbers the modules know."""

    files: set[int] = field(default_factory=set)
    logs: dict[str, Any] | None = None


_preloaded = Preloaded()


def fork_worker(start: WorkerStart, *, only_try: bool = False) -> int:
    """Fork a worker and return its pid. With `only_try` the child imports the handlers, writes its note, and leaves.

    Raises OSError where the kernel gives no process (EAGAIN, ENOMEM).
    """
    # fork() copies only the thread that calls it. A lock that another holds would stay held in the child for ever.
    _tell_of_threads()
    parent = os.getpid()
    _empty_buffers()
    # A signal between fork() and the child's own set-up would be handled by the supervisor's handlers, in the child: it
    # would write to the wake-up descriptor that both share, and the supervisor would drain.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            _become_worker(start, parent, only_try=only_try)
        # On both sides, since either may be first to need it: a kill of the group must not find the child in ours.
        try:
            os.setpgid(pid, pid)
        except OSError:
            pass  # it is dead already, and was in its own group before
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def preload(settings: Settings) -> tuple[int, str] | None:
    """Import the worker's code and the handlers in this process, so that all workers share what that takes.

    Returns the exit code and the reason where it can't be done.
    """
    from fencepost.worker.boot import import_handlers  # noqa: PLC0415  # only where it was asked for

    open_before, logs_before = descriptors(), structlog.get_config()
    signal.signal(signal.SIGALRM, _took_too_long)
    signal.setitimer(signal.ITIMER_REAL, settings.boot_timeout)
    try:
        # What they print goes out while there is time for it.
        with from_the_background():
            error = import_handlers(settings.handlers)
            _empty_buffers(wait=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    # How the handlers' modules want to log is for the workers: the supervisor never waits for whoever reads its logs.
    _preloaded.logs = structlog.get_config()
    structlog.configure(**logs_before)
    if error is not None:
        return CANNOT_START, f"the handlers don't import: {error}"
    _preloaded.files = descriptors() - open_before
    if (refused := cannot_be_forked(_preloaded.files)) is not None:
        return REFUSED, ": ".join(refused)
    # A collection in a child would touch each of these objects, and so copy the pages that they are in.
    gc.collect()
    gc.freeze()
    return None


def become_subreaper() -> None:
    """Let orphans of our descendants come to this process and not to PID 1: they are what jobs have left behind."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _become_worker(start: WorkerStart, parent: int, *, only_try: bool) -> NoReturn:
    try:
        # Objects of the supervisor must never be finalized here: a connection would say goodbye on the session that the
        # supervisor still uses, and a socket would close a number that is someone else's by now. The stack below keeps most
        # of them alive, this keeps the rest from the collector.
        gc.freeze()
        # The event loop is the supervisor's. Without this a coroutine of a job could not run: one would seem to be running.
        asyncio._set_running_loop(None)  # noqa: SLF001  # no other way up to 3.12, which does it itself
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE}:
            signal.signal(number, signal.SIG_DFL)
        # In a group of its own it is in the background of any terminal: by default, what a job prints would stop it there
        # (`stty tostop`).
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.setpgid(0, 0)
        # The kernel ends us with the supervisor. It counts from here on, so look whether it is gone already.
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(LOST_ITS_PARENT)
        # Orphans of this worker's job come to it, and to the supervisor only after its death: so they are known as its own.
        _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _close_all_but({0, 1, 2, start.line.fileno(), start.note, start.stacks, *_preloaded.files})
        # It reads nothing.
        _point_nowhere(0, os.O_RDONLY)
        _be_first_for_the_oom_killer()
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        if _preloaded.logs is not None:
            structlog.configure(**_preloaded.logs)
        from fencepost.worker.boot import run_worker, try_handlers  # noqa: PLC0415  # at the fork, in the child

        if only_try:
            try_handlers(start)
        # Never return from here: unwinding would close the supervisor's connections, which fork() made us share.
        run_worker(start)
    finally:
        os._exit(LOST_ITS_PARENT)


def _empty_buffers(*, wait: bool = False) -> None:
    """Write what is still in a buffer: after a fork both would. What can't be written is dropped: nobody reads it.

    The modules of handlers may have printed, closed or replaced these, and a tick waits for no reader.
    """
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            if wait or _takes_more(number):
                with from_the_background():
                    stream.flush()
                continue
        except Exception:  # noqa: BLE001, S110  # no reader, no room, no descriptor, no stream, or no time any more
            pass
        _drop(number, stream)


def _takes_more(number: int) -> bool:
    ready = select.poll()
    ready.register(number, select.POLLOUT)
    return bool(ready.poll(0))


def _drop(number: int, stream: Any) -> None:
    # By having it written to nowhere: a buffer that has failed keeps what it has, and a file object can't forget it.
    try:
        kept = os.dup(number)
        _point_nowhere(number, os.O_WRONLY)
        try:
            stream.flush()
        finally:
            os.dup2(kept, number)
            os.close(kept)
    except Exception:  # noqa: BLE001, S110  # as above: then there is nothing that a child could write
        pass


def _point_nowhere(number: int, flags: int) -> None:
    null = os.open("/dev/null", flags)
    os.dup2(null, number)
    if null != number:
        os.close(null)


def _close_all_but(kept: set[int]) -> None:
    # By number, never through the objects that own them: closing a loop or a connection does more than close.
    first = 3
    for number in sorted(number for number in kept if number >= first):
        os.closerange(first, number)
        first = number + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def _be_first_for_the_oom_killer() -> None:
    try:
        with open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file:
            score = int(file.read())
            file.seek(0)
            file.write(str(min(1000, score + OOM_SCORE_RAISED_BY)))
    except OSError:
        pass  # no /proc, or not ours to write: the kernel chooses by size then


def _tell_of_threads() -> None:
    if not (threads := threads_beside()):
        return
    names = ", ".join(threads)
    if names not in _threads_told:
        _threads_told.add(names)
        log.warning(
            "the supervisor has more than one thread as it forks; the boot deadline covers what that may break", threads=names
        )


def _took_too_long(_number: int, _frame: object) -> NoReturn:
    raise TimeoutError("importing took longer than FENCEPOST_BOOT_TIMEOUT")
