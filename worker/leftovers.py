"""What a job leaves behind in its process.

A thread or a program of one job must not be there for the next: it could hold the earlier job's data, its connection or the
worker's line. Nor must a timer or a signal handler, that would go off in the next one's code, nor another working directory or
a limit. Nor may it find no descriptor free: files that a job leaves open are its own affair until half of those that the
process may have are taken. Timers are stopped at once, the environment is put back; for the rest the worker leaves, and the
supervisor ends the group.

Known gap: a thread that no Python code runs in (a library's pool) is not seen.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # getsignal of the module `signal` makes an enum of each answer
import contextlib
import errno
import os
import resource
import signal
import sys
from typing import Any, NamedTuple

import psutil

LIMITS = sorted({value for name, value in vars(resource).items() if name.startswith("RLIMIT_")})
SIGNALS = sorted(map(int, signal.valid_signals()))
TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class Footprint(NamedTuple):
    """What is in the process: threads that run Python, living children, what signals do, our files, and the rest."""

    threads: frozenset[int]
    children: frozenset[int]
    handlers: tuple[Any, ...]
    mask: frozenset[int]
    descriptors: tuple[tuple[int, int] | None, ...]
    few_free: bool
    directory: tuple[int, int] | None
    umask: int
    limits: tuple[tuple[int, int], ...]
    identity: tuple[tuple[int, int, int], ...]
    niceness: int
    environment: dict[bytes, bytes]
    modules: int


def footprint(descriptors: tuple[int, ...]) -> Footprint:
    """Return what is there now; `descriptors` are the worker's own."""
    return Footprint(
        threads=frozenset(sys._current_frames()),
        children=frozenset(_living_children()),
        handlers=tuple(map(_signal.getsignal, SIGNALS)),
        mask=frozenset(_signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        descriptors=tuple(_identity(fd) for fd in descriptors),
        few_free=_few_descriptors_are_free(),
        directory=_identity("."),
        umask=_umask(),
        limits=tuple(map(resource.getrlimit, LIMITS)),
        identity=(os.getresuid(), os.getresgid()),
        niceness=os.getpriority(os.PRIO_PROCESS, 0),
        environment=_environment().copy(),
        modules=len(sys.modules),
    )


def stop_timers() -> bool:
    """Stop the process' interval timers; tell whether one was running. First of all: one could go off in our own code."""
    running = [signal.setitimer(timer, 0)[0] > 0 for timer in TIMERS]
    return any(running)


def left_behind(before: Footprint, after: Footprint, *, timer: bool = False, line: bool = False) -> list[str]:
    """Return in words what the job between the two has left, and what it took away."""
    if before == after and not (after.few_free or timer or line):
        return []
    found = []
    if threads := len(after.threads - before.threads):
        found.append(f"{threads} thread" + "s" * (threads > 1))
    if after.children - before.children:
        found.append("a program that still runs")
    if before.descriptors != after.descriptors:
        found.append("the worker's own descriptors closed or replaced")
    if after.few_free:
        found.append("too many open files")
    if before.directory != after.directory:
        found.append("another working directory")
    kept = ("umask", "limits", "identity", "niceness")
    found += [f"another {name}" for name in kept if getattr(before, name) != getattr(after, name)]
    if before.handlers != after.handlers:
        found.append("signal handlers")
    if before.mask != after.mask:
        found.append("blocked signals")
    if timer:
        found.append("a running timer")
    if line:
        found.append("the worker's line shut down")
    return found


def end_programs(before: Footprint) -> None:
    """Kill what the job has started and left, and what that has started: the job may run again soon, and not beside it."""
    for pid in _living_children() - before.children:
        try:
            for process in [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]:
                process.kill()
        except psutil.Error:
            continue


def reap_dead_programs(before: Footprint) -> None:
    """Reap what the job has started and not waited for. What was there before it is for whoever started that."""
    for child in psutil.Process().children() if _has_children() else ():
        if child.pid not in before.children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, os.WNOHANG)


def put_back_environment(before: Footprint) -> None:
    """Make the environment what it was: no reason to replace the worker.

    What a job has added stays if it has imported something for the first time: a library may have set it for itself, and will
    not do so again.
    """
    if _environment() == before.environment:
        return
    for name, value in before.environment.items():
        if os.environb.get(name) != value:
            os.environb[name] = value
    if len(sys.modules) == before.modules:
        for name in os.environb.keys() - before.environment.keys():
            del os.environb[name]


def _environment() -> dict[bytes, bytes]:
    """Return what os.environ holds, as it is held: decoded name by name it takes longer than all the rest here."""
    return os.environb._data  # type: ignore[attr-defined,no-any-return]  # noqa: SLF001  # as above


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _few_descriptors_are_free() -> bool:
    """Whether half of the descriptors are taken: the system gives the lowest that is free, so one tells, without a list."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return False
    try:
        lowest = os.dup(0)
    except OSError as error:
        return error.errno == errno.EMFILE
    os.close(lowest)
    return lowest >= limit // 2


def _identity(file: int | str) -> tuple[int, int] | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _living_children() -> set[int]:
    if not _has_children():
        return set()
    return {child.pid for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE}


def _has_children() -> bool:
    """Whether there is any child, dead or alive: one system call, and usually the answer is no."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
