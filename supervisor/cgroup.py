"""What our cgroups allow, and what the memory's counts: the only one who knows that a SIGKILL was for want of memory."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

NO_LIMIT = 1 << 60
"""Bytes from which on version 1 says "no limit": it has no word for it."""

TOLD_WITHIN = 2.0
"""Seconds from the kernel's counting a kill to the death of who was killed: giving back much memory takes a while."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the cgroups of this process allow it, in all and with its children; None where nothing limits it.

    `memory` is in bytes, `tasks` counts processes and threads. `killed_together`: out of memory, the kernel kills all of the
    group at once.
    """

    memory: int | None
    cpus: float | None
    tasks: int | None
    killed_together: bool


def limits(root: Path = Path("/")) -> Limits:
    """Read the limits: each cgroup above ours limits us too, as far as they can be seen from here."""
    memory = [*_numbers("memory", "memory.max", root), *_numbers("memory", "memory.limit_in_bytes", root)]
    return Limits(
        memory=min((limit for limit in memory if limit < NO_LIMIT), default=None),
        cpus=min(_cpus(root), default=None),
        tasks=min(_numbers("pids", "pids.max", root), default=None),
        killed_together=any(_numbers("memory", "memory.oom.group", root)),
    )


@dataclass(slots=True)
class _Kills:
    """How many the cgroup had counted when we last looked, and when those were seen that no death was told by yet."""

    seen: int = 0
    untold: list[float] = field(default_factory=list)


_kills = _Kills()


def look() -> None:
    """Notice how many kills the cgroup has counted. Done at each tick: what it killed long ago was not who dies now.

    A job's program, say, whose end nobody here is told of.
    """
    now, count = time.monotonic(), _oom_kills()
    _kills.untold[:] = [at for at in _kills.untold if now - at <= TOLD_WITHIN] + [now] * (count - _kills.seen)
    _kills.seen = count


def counted_an_oom_kill() -> bool:
    """Whether the cgroup has counted a kill that no death was told by yet: each is one death, also of several at once."""
    look()
    if not _kills.untold:
        return False
    _kills.untold.pop(0)
    return True


def start() -> None:
    """Begin to count from now: what was killed before was not ours."""
    look()
    _kills.untold.clear()


@cache
def _file() -> Path | None:
    """Return where the kills of our cgroup are counted: version 2, or version 1, or nowhere."""
    for folder in _folders("memory", Path("/")):
        for name in ("memory.events", "memory.oom_control"):
            if (folder / name).exists():
                return folder / name
    return None


def _oom_kills() -> int:
    file = _file()
    try:
        # Ten times a second, so by as few calls as there are.
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC) if file is not None else None
    except OSError:
        fd = None
    # What can't be read just now, for want of a descriptor say, has counted nothing new.
    if fd is None:
        return _kills.seen
    try:
        events = os.read(fd, 4096)
    finally:
        os.close(fd)
    for line in events.splitlines():
        name, _, count = line.partition(b" ")
        if name == b"oom_kill" and count.isdigit():
            return int(count)
    return _kills.seen


def _folders(controller: str, root: Path) -> Iterator[Path]:
    """Yield where our cgroups are described, our own first and then those above it: version 2, or version 1.

    A container may see the host's path of its cgroup, although only the cgroup itself is mounted: so the folders that are
    not there are left out.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    mount = root / "sys/fs/cgroup"
    for line in lines:
        _, controllers, path = line.split(":", 2)
        own = Path(path.lstrip("/"))
        if not controllers:
            yield from (mount / one for one in (own, *own.parents))
        elif controller in controllers.split(","):
            yield from (mount / controller / one for one in (own, *own.parents))


def _cpus(root: Path) -> Iterator[float]:
    for folder in _folders("cpu", root):
        # "max" or -1 is no quota.
        one_line = _read(folder / "cpu.max") or f"{_read(folder / 'cpu.cfs_quota_us')} {_read(folder / 'cpu.cfs_period_us')}"
        quota, _, period = one_line.partition(" ")
        if quota.isdecimal() and period.isdecimal() and int(period) > 0:
            yield int(quota) / int(period)


def _numbers(controller: str, name: str, root: Path) -> list[int]:
    return [int(text) for folder in _folders(controller, root) if (text := _read(folder / name)).isdecimal()]


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""  # not there in this version, or not for us to read: it limits nothing that we know of
