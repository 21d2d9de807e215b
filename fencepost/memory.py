"""How much memory a worker has taken for itself.

Counted is anonymous memory beyond what the process was forked with. What it shares with the supervisor is not of its making,
and files that are mapped can be dropped by the kernel at any time. Cheap: one small file a look.
"""

from __future__ import annotations

import os

PAGE = os.sysconf("SC_PAGE_SIZE")

RECYCLE_FROM = 0.75
"""Of FENCEPOST_MAX_RSS: above it a worker is replaced after its job, so that few are killed for all of it."""


def anonymous(pid: int | str = "self") -> int:
    """Return the bytes of anonymous memory that a process has in RAM; 0 where that can't be read, since it is dead."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * PAGE


def too_large(taken: int, max_rss: int) -> tuple[str, str] | None:
    """Return why a worker that takes so many bytes when idle can't work, and the cure. It would be replaced after each job."""
    if not max_rss or taken <= max_rss * RECYCLE_FROM:
        return None
    what = (
        f"FENCEPOST_MAX_RSS={megabytes(max_rss)} is too little, since an idle worker takes {megabytes(taken)} and one is "
        f"replaced from {megabytes(max_rss * RECYCLE_FROM)} on"
    )
    return what, f"set it to {megabytes(taken * 2)} or more"


def megabytes(size: float) -> str:
    """Return a size as the settings take it."""
    return f"{size / 1024**2:.0f}M"
