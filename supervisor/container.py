"""What the container that we are in means for a supervisor: warnings, since none of it keeps a start from working at all.

Facts are read in `look`; `warnings` only judges.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

from fencepost.settings import Settings
from fencepost.supervisor import cgroup
from fencepost.supervisor.slots import DESCRIPTORS_A_CHILD, DESCRIPTORS_BESIDE

WORKER_MEMORY = 6 * 1024 * 1024
"""Bytes that an idle worker has to itself at least, beside what its handlers' imports take (measured: 8 to 12 MiB)."""

WORKER_TASKS = 3
"""Threads of an idle worker: its own, and two that its connections need."""

SUPERVISOR_TASKS = 2
"""Its one thread, and one that looks a name up."""

SHELLS = ("sh", "ash", "bash", "busybox", "dash", "ksh", "zsh")

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Container:
    """What this process may use, in all and with its children. `descriptors` is None without a limit."""

    limits: cgroup.Limits
    descriptors: int | None
    first_process: str


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes in use: by a process like the supervisor, and what the imports of the handlers have added in a child of it."""

    ours: int
    of_imports: int


def look(root: Path = Path("/")) -> Container:
    """Read what limits this process."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        first_process = (root / "proc/1/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        first_process = ""
    return Container(cgroup.limits(root), None if most == resource.RLIM_INFINITY else most, first_process)


def memory_in_use() -> Memory:
    """Return what this process uses, and how much more its largest child did, which has tried the imports and is gone."""
    ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return Memory(ours * 1024, max(0, child - ours) * 1024)


def description(limits: cgroup.Limits) -> str:
    """Return the limits in words, or '' if there are none."""
    told = []
    if limits.memory is not None:
        told.append(f"{_mib(limits.memory)} of memory")
    if limits.cpus is not None:
        told.append("1 CPU" if limits.cpus == 1 else f"{limits.cpus:g} CPUs")
    if limits.tasks is not None:
        told.append(f"{limits.tasks} processes and threads")
    return ", ".join(told)


def warnings(container: Container, settings: Settings, memory: Memory | None) -> list[str]:
    """Return what the limits mean for these settings, a line each. `memory` is None where nothing could be measured."""
    limits, workers = container.limits, settings.concurrency
    lines = []
    if memory is not None and limits.memory is not None:
        needed = memory.ours + workers * (WORKER_MEMORY + memory.of_imports)
        if needed > limits.memory:
            lines.append(
                f"{_workers(workers)} and the supervisor need at least {_mib(needed)} before any job runs, and the container "
                f"has {_mib(limits.memory)}: raise its memory limit or lower FENCEPOST_CONCURRENCY"
            )
    if limits.killed_together:
        lines.append(
            "out of memory, the kernel kills the supervisor together with all workers (memory.oom.group is 1): every job that "
            "runs then is recorded as lost, by the next supervisor"
        )
    if limits.cpus is not None and workers > limits.cpus:
        lines.append(
            f"{_workers(workers)} share {limits.cpus:g} CPU: fine for jobs that wait, but jobs that compute take longer, "
            "and may reach their max runtime"
        )
    tasks = SUPERVISOR_TASKS + workers * WORKER_TASKS
    if limits.tasks is not None and tasks > limits.tasks:
        lines.append(
            f"{_workers(workers)} and the supervisor need {tasks} processes and threads, and the container may have "
            f"{limits.tasks} (pids.max): raise that or lower FENCEPOST_CONCURRENCY"
        )
    descriptors = DESCRIPTORS_BESIDE + workers * DESCRIPTORS_A_CHILD
    if container.descriptors is not None and descriptors > container.descriptors:
        lines.append(
            f"a supervisor of {_workers(workers)} needs {descriptors} descriptors, and may open {container.descriptors} "
            "(ulimit -Hn): raise that or lower FENCEPOST_CONCURRENCY"
        )
    if container.first_process in SHELLS:
        lines.append(
            f"PID 1 is {container.first_process}, and a shell does not pass on TERM: begin the container's command with exec, "
            "or `fencepost run` is killed with its jobs when the container stops"
        )
    return lines


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


def _mib(size: int) -> str:
    return f"{size / _MIB:.0f} MiB"
