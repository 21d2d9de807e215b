"""The memory of an idle worker: its proportional set size, where what it shares with others is shared out among them.

The handlers are a module of a few lines: all of it is Fencepost's. What is shared is the supervisor's, so a worker's part of it
is the smaller, the more of them there are.
"""

from __future__ import annotations

import re
from pathlib import Path

from peers.processes import tree

from speed.lab import Facts, Lab
from speed.page import spread, table
from speed.parts.respawn import WAYS

AT_A_TIME = (4, 16)
JOBS = 400
"""Done before it is looked at: a worker that has run no job is smaller."""


def measure(lab: Lab) -> Facts:
    """Look at workers with nothing left to do, preloaded and not."""
    return {"MiB": {way: {str(n): _sizes(lab, preload, n) for n in AT_A_TIME} for way, preload in WAYS.items()}}


def _sizes(lab: Lab, preload: str, n: int) -> list[float]:
    with lab.place(lab.peer("fencepost"), JOBS) as place, place.working(n, FENCEPOST_PRELOAD=preload) as main:
        place.wait(lambda: place.ask(place.peer.left) == 0, "the end of all jobs")
        workers = [process for process in tree(main) if "fencepost: worker" in " ".join(process.cmdline())]
        return [_proportional(process.pid) for process in workers]


def _proportional(pid: int) -> float:
    said = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    found = re.search(r"^Pss:\s+(\d+) kB$", said, re.MULTILINE)
    assert found is not None, said
    return int(found[1]) / 1024


def tell(facts: Facts) -> str:
    """Tell of it."""
    rows = [[way, *(spread(found[str(n)]) for n in AT_A_TIME)] for way, found in facts["MiB"].items()]
    return table(["handlers", *(f"MiB of each of {n} workers" for n in AT_A_TIME)], rows)
