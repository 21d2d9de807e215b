"""What the memory cgroup counts: the only one who knows that a SIGKILL was for want of memory."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_seen = 0


def counted_an_oom_kill() -> bool:
    """Whether the cgroup has counted a kill since this was last asked."""
    global _seen  # a counter of the kernel, and how far we have read it
    count = _oom_kills()
    more, _seen = count > _seen, count
    return more


def start() -> None:
    """Begin to count from now: what was killed before was not ours."""
    counted_an_oom_kill()


@cache
def _file() -> Path | None:
    """Return where the kills of our cgroup are counted: version 2, or version 1, or nowhere."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            candidates = [Path("/sys/fs/cgroup" + path, "memory.events"), Path("/sys/fs/cgroup/memory.events")]
        elif "memory" in controllers.split(","):
            root = Path("/sys/fs/cgroup/memory")
            candidates = [Path(f"{root}{path}", "memory.oom_control"), root / "memory.oom_control"]
        else:
            continue
        for candidate in candidates:
            if candidate.exists():
                return candidate
    return None


def _oom_kills() -> int:
    file = _file()
    if file is None:
        return 0
    try:
        for line in file.read_text(encoding="ascii").splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    except (OSError, ValueError):
        pass
    return 0
