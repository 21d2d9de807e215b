"""Where a job's processor time goes, for jobs that do nothing: to who runs it, and to the server's sessions.

What waits for a disk takes none. Two cores have two seconds of it for each second, and what a job takes together says how many
jobs they can do at most.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable
from subprocess import Popen

import psutil
from peers.processes import tree

from speed.lab import Facts, Lab, Place
from speed.page import number, table
from speed.peer import Peer, all_peers

AT_A_TIME = (1, 4, 16)
BETWEEN = (0.1, 0.9)
"""Shares of the jobs, with all of them at a time: what comes before and after is the worker's start, and its end."""
COMPARED = ("fencepost", "pgbench_two", "pgbench_one", "graphile_worker")
WHERE = ("workers", "supervisor", "sessions")


def measure(lab: Lab) -> Facts:
    """Take the microseconds of each, for Fencepost, for bare SQL, and for the quickest that works job by job."""
    rows: Facts = {}
    for _ in range(lab.rounds):
        for peer in (peer for peer in lab.peers if peer.slug in COMPARED):
            for n in AT_A_TIME:
                row = rows.setdefault(peer.slug, {}).setdefault(str(n), {where: [] for where in WHERE})
                for where, microseconds in _once(lab, peer, n).items():
                    row[where].append(microseconds)
    return {"cores": os.cpu_count(), "rows": rows}


def _once(lab: Lab, peer: Peer, n: int) -> dict[str, float]:
    jobs = round(lab.jobs * peer.pace)
    with lab.place(peer, jobs) as place, place.working(n) as main:
        (began, before), (ended, after) = (_when(place, main, round(jobs * (1 - share))) for share in BETWEEN)
    return {where: (after[where] - before[where]) / (began - ended) * 1e6 for where in WHERE}


def _when(place: Place, main: Popen[bytes], left: int) -> tuple[int, dict[str, float]]:
    """Return how many jobs are left, once it is no more than `left`, and what each has used by then."""
    place.wait(lambda: place.ask(place.peer.left) <= left, "the end of enough jobs")
    processes = tree(main)
    supervisors = processes[:1] if place.peer.slug == "fencepost" else []
    used = {
        "workers": _used(processes[len(supervisors) :]),
        "supervisor": _used(supervisors),
        "sessions": _used(process for process in psutil.process_iter(["cmdline"]) if _is_session(process, place)),
    }
    return place.ask(place.peer.left), used


def _is_session(process: psutil.Process, place: Place) -> bool:
    title = " ".join(process.info["cmdline"] or [])
    return title.startswith("postgres: ") and f" run_{place.peer.slug} " in title


def _used(processes: Iterable[psutil.Process]) -> float:
    seconds = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        seconds += times.user + times.system
    return seconds


def tell(facts: Facts) -> str:
    """Tell of it."""
    names = {peer.slug: peer.name for peer in all_peers()}
    told = []
    for slug, row in facts["rows"].items():
        for n, found in row.items():
            parts = [statistics.median(found[where]) for where in WHERE]
            told.append([names[slug], n, *map(number, parts), number(sum(parts)), number(facts["cores"] * 1e6 / sum(parts))])
    return table(["µs of a job", "at a time", *WHERE, "together", f"{facts['cores']} cores can do, jobs/s"], told)
