"""Jobs that do nothing, one, four and sixteen at a time."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from peers.peer import Trouble

from speed.lab import Facts, Lab, Place
from speed.page import spread, table
from speed.peer import Peer, all_peers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AT_A_TIME = (1, 4, 16)
WARM, OVER = 0.1, 0.95
"""Shares of the jobs: what comes before and after them is the worker's start, and its end without enough to do."""
LONGEST = 4.0
"""Seconds that are measured at most."""


def measure(lab: Lab) -> Facts:
    """Have all peers one after the other, and that again: the machine's drift then hits all alike."""
    peers = [peer for peer in lab.peers if peer.throughput]
    rows: dict[str, dict[str, list[float]]] = {peer.slug: {str(n): [] for n in AT_A_TIME} for peer in peers}
    troubles: dict[str, dict[str, str]] = {peer.slug: {} for peer in peers}
    facts = {
        "jobs": lab.jobs,
        "rows": rows,
        "manners": {peer.slug: peer.manner for peer in peers},
        "troubles": troubles,
        "missing": lab.missing,
    }
    for number in range(lab.rounds):
        for n in map(str, AT_A_TIME):
            # There and back: who is measured just after whom must not be the same each time.
            for peer in peers if number % 2 == 0 else reversed(peers):
                if n in troubles[peer.slug]:
                    continue
                try:
                    rows[peer.slug][n].append(run(lab, peer, int(n)))
                except Trouble as trouble:
                    troubles[peer.slug][n] = str(trouble)
                    rows[peer.slug][n].clear()
                print(f"  round {number + 1}, {n} at a time: {peer.name} {_cell(rows, troubles, peer.slug, n)}", flush=True)
        lab.so_far(facts)
    return facts


def run(lab: Lab, peer: Peer, n: int, kind: str = "noop") -> float:
    """Return how many jobs a second a worker does that runs `n` of them at a time."""
    jobs = round(lab.jobs * peer.pace)
    with lab.place(peer, jobs, kind) as place, place.working(n):
        return rate(place, jobs)


@dataclass(frozen=True)
class Count:
    """How many jobs were done, and when, by the server's clock."""

    at: float
    done: int


def rate(place: Place, jobs: int) -> float:
    """Return jobs a second between two counts on the server."""
    with psycopg.connect(place.database, autocommit=True) as conn:
        looks = [_look(conn, place, jobs)]

        def done(share: float) -> bool:
            looks.append(_look(conn, place, jobs))
            return looks[-1].done >= jobs * share

        place.wait(lambda: done(WARM), "a first tenth of the jobs")
        first = looks[-1]
        if first.done >= jobs * OVER:
            raise Trouble("all jobs were done at once: it needs more of them")

        def is_over() -> bool:
            # Where ends are written once a second, a time that ends between two of them would count too few.
            return done(OVER) or (looks[-1].at - first.at > LONGEST and looks[-1].done > looks[-2].done)

        place.wait(is_over, "the end of the jobs", every=0.2)
        # With none left it had been over for a while.
        last = looks[-2] if looks[-1].done == jobs and looks[-2].done > first.done else looks[-1]
        return (last.done - first.done) / (last.at - first.at)


def _look(conn: psycopg.Connection[Any], place: Place, jobs: int) -> Count:
    query = f"select extract(epoch from clock_timestamp())::float8, ({place.peer.left})"
    ((at, left),) = conn.execute(query.encode()).fetchall()
    return Count(at, jobs - left)


def tell(facts: Facts) -> str:
    """Tell of it: the quickest first."""
    names = {peer.slug: peer for peer in all_peers()}
    rows, counts = facts["rows"], [str(n) for n in AT_A_TIME]
    quickest = sorted(rows, key=lambda slug: -statistics.median(rows[slug]["16"] or [0]))
    told = [
        [names[slug].name, names[slug].manner, *(_cell(rows, facts["troubles"], slug, n) for n in counts)] for slug in quickest
    ]
    told += [
        [names[slug].name, names[slug].manner, f"can't be installed: {why}", "", ""] for slug, why in facts["missing"].items()
    ]
    return table(["jobs a second", "how it works", *(f"{n} at a time" for n in counts)], told)


def _cell(rows: Facts, troubles: Facts, slug: str, n: str) -> str:
    return spread(rows[slug][n]) or f"not measured: {troubles[slug].get(n)}"


def draw(axes: Axes, facts: Facts) -> None:
    """Draw bars by peer, on a scale by powers of ten."""
    names = {peer.slug: peer.name for peer in all_peers()}
    measured = {slug: row for slug, row in facts["rows"].items() if all(row.values())}
    slugs = sorted(measured, key=lambda slug: statistics.median(measured[slug]["16"]))
    high = 0.8 / len(AT_A_TIME)
    for place, n in enumerate(AT_A_TIME):
        at = [row + (len(AT_A_TIME) - 1 - place) * high for row in range(len(slugs))]
        found = [measured[slug][str(n)] for slug in slugs]
        middle = [statistics.median(rates) for rates in found]
        apart = [
            [one - min(rates) for one, rates in zip(middle, found, strict=True)],
            [max(rates) - one for one, rates in zip(middle, found, strict=True)],
        ]
        axes.barh(at, middle, high, xerr=apart, label=f"{n} at a time", color=("#9c9", "#4a4", "#151")[place], ecolor="#999")
    axes.set_xscale("log")
    axes.set_yticks([row + high for row in range(len(slugs))], [names[slug] for slug in slugs])
    axes.set_xlabel("jobs a second")
    axes.legend(frameon=False)
