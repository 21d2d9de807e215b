"""Try whether the handlers import, in a child: what they do to its process must not happen to ours."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time

from fencepost.board import Board
from fencepost.checks import Refusal
from fencepost.memory import anonymous
from fencepost.settings import Settings
from fencepost.start import WorkerStart
from fencepost.supervisor.deaths import death_of
from fencepost.supervisor.fork import fork_worker

NOTE_LIMIT = 1024 * 1024


def try_import(settings: Settings) -> str | Refusal | None:
    """Return what is wrong with the modules in FENCEPOST_HANDLERS, or what they refuse, or None. Takes at most BOOT_TIMEOUT."""
    ours, theirs = socket.socketpair()
    note, stacks = os.memfd_create("fencepost-note"), os.memfd_create("fencepost-stacks")
    try:
        pid = fork_worker(WorkerStart(settings, 1, "trial", Board(), theirs, note, stacks, anonymous()), only_try=True)
        theirs.close()
        in_time = _ended(pid, settings.boot_timeout)
        os.killpg(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if not in_time:
            return f"importing took longer than FENCEPOST_BOOT_TIMEOUT, {settings.boot_timeout:g} s"
        found = json.loads(os.pread(note, NOTE_LIMIT, 0) or b"{}")
        if "refused" in found:
            return Refusal(*found["refused"])
        if "error" in found:
            return str(found["error"])
        if "kinds" not in found:
            return f"importing ended the process: {death_of(status, 0)}"
        return None
    finally:
        ours.close()
        for fd in (note, stacks):
            os.close(fd)


def _ended(pid: int, within: float) -> bool:
    """Wait for a child's end, for at most `within` seconds, and leave it to be reaped."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        # Forbidden by a seccomp filter: it is asked for again and again.
        until = time.monotonic() + within
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if time.monotonic() >= until:
                return False
            time.sleep(0.01)
        return True
    try:
        ready = select.poll()
        ready.register(pidfd, select.POLLIN)
        return bool(ready.poll(within * 1000))
    finally:
        os.close(pidfd)
