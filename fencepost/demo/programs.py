"""Start programs that end with the demo, whatever ends it.

Each is in a session of its own: Ctrl-C at the terminal is for the demo alone, which then ends them in their order.
Should the demo be killed, the kernel ends them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

PR_SET_PDEATHSIG = 1

# Loaded before any fork: the child should not have to look for libraries.
_libc = ctypes.CDLL(None, use_errno=True)


def start(
    command: Sequence[str | Path],
    log: Path,
    environment: Mapping[str, str],
    *,
    dies_by: signal.Signals,
    user: tuple[int, int] | None = None,
    folder: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start `command`, both its outputs appended to `log`, as another user if one is given (uid and gid)."""
    demo = os.getpid()

    def die_with_the_demo() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, dies_by, 0, 0, 0)
        # The kernel counts from here on, so look whether it is gone already.
        if os.getppid() != demo:
            os._exit(1)

    with log.open("ab") as file:
        return subprocess.Popen(  # noqa: S603  # our own programs
            command,
            cwd=folder or "/",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            preexec_fn=die_with_the_demo,  # noqa: PLW1509  # the demo has one thread, and this makes two system calls
            user=user[0] if user else None,
            group=user[1] if user else None,
            extra_groups=[] if user else None,
        )


def end(process: subprocess.Popen[bytes], within: float = 3.0) -> None:
    """Ask a program to leave, if it still runs, and return when it is gone and with it all that it has started.

    The others are not asked: a server that initdb runs ends in order, and clears away, when initdb is no more.
    """
    if process.poll() is not None:
        return
    one = psutil.Process(process.pid)
    others = one.children(recursive=True)
    process.terminate()
    try:
        process.wait(within)
    except subprocess.TimeoutExpired:
        kill(process)
    _, left = psutil.wait_procs(others, timeout=within)
    _kill(left)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a program and all that it has started, and return when they are gone."""
    if process.poll() is not None:
        return
    one = psutil.Process(process.pid)
    # Stopped first, so that it starts nothing that would be missed here.
    process.send_signal(signal.SIGSTOP)
    others = one.children(recursive=True)
    process.kill()
    process.wait()
    _kill(others)


def _kill(processes: Sequence[psutil.Process]) -> None:
    for one in processes:
        try:
            one.kill()
        except psutil.NoSuchProcess:
            pass
    psutil.wait_procs(processes, timeout=5)


def children(pid: int) -> list[tuple[int, str]]:
    """Return the living children of a process, each with its title."""
    found = []
    for child in psutil.Process(pid).children():
        try:
            found.append((child.pid, " ".join(child.cmdline())))
        except psutil.NoSuchProcess:
            pass
    return found


def is_stopped(pid: int) -> bool:
    """Return whether SIGSTOP has stopped the process."""
    return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
