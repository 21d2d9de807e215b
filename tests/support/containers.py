"""What a container gives and withholds: a memory limit of its own, a host name, a root that is only read."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from pathlib import Path

import psutil
import pytest

from support.processes import Supervisor
from support.waiting import wait_until

CGROUPS = Path("/sys/fs/cgroup")

WITHOUT = Path(__file__).with_name("starts_without.py")


class MemoryGroup:
    """A memory control group with a limit, in bytes. `inside` is what starts a program in it. Version 1, or version 2."""

    def __init__(self, limit: int) -> None:
        version_1 = (CGROUPS / "memory").is_dir()
        name = f"fencepost-{uuid.uuid4().hex[:12]}"
        self._folder = (CGROUPS / "memory" if version_1 else CGROUPS) / name
        file = self._folder / ("memory.limit_in_bytes" if version_1 else "memory.max")
        try:
            self._folder.mkdir()
            file.write_text(str(limit))
        except OSError as error:
            self.remove()
            pytest.skip(f"no memory control group can be made here: {error}")
        self.inside = ("sh", "-c", f'echo $$ > {self._folder}/cgroup.procs && exec "$@"', "sh")

    def processes(self) -> list[int]:
        """Return the pids of all that is in it."""
        return [int(pid) for pid in (self._folder / "cgroup.procs").read_text().split()]

    def kill(self) -> None:
        """Kill all that is in it, as the kernel does with `memory.oom.group`, and a container's runtime."""
        wait_until(self._is_empty, what="the end of all that was in the control group")

    def remove(self) -> None:
        """Leave nothing of it."""
        if self._folder.is_dir():
            self.kill()
            wait_until(self._removed, what="the end of the control group")

    def _is_empty(self) -> bool:
        pids = self.processes()
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return not pids

    def _removed(self) -> bool:
        try:
            self._folder.rmdir()
        except OSError:
            return False  # what was killed is still being cleared away
        return True


def pod(name: str) -> tuple[str, ...]:
    """Return what starts a program as PID 1 of a machine of this name."""
    renamed = f'echo {name} > /proc/sys/kernel/hostname && exec "$@"'
    return ("unshare", "--pid", "--fork", "--mount-proc", "--uts", "--kill-child", "sh", "-c", renamed, "sh")


def inner(supervisor: Supervisor) -> psutil.Process:
    """Return the process that is PID 1 in there."""
    (child,) = wait_until(lambda: psutil.Process(supervisor.pid).children(), what="the supervisor in its namespace")
    return child


def without(*lacking: str) -> tuple[str, ...]:
    """Return what starts a program that has to do without, in the words of `starts_without.py`."""
    return ("unshare", "--mount", sys.executable, str(WITHOUT), ",".join(lacking))
