"""Jobs that do nothing, one, four and sixteen at a time."""

from __future__ import annotations

import statistics
import time
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
LONGEST = 8.0
"""Seconds that are measured at most."""


def measure(lab: Lab) -> Facts:
    """Have all peers one after the other, and that again: the machine's drift then hits all alike."""
    peers = [peer for peer in lab.peers if peer.throughput]
    rows: dict[str, dict[str, list[float]]] = {peer.slug: {str(n): [] for n in AT_A_TIME} for peer in peers}
    troubles = dict(lab.missing)
    for number in range(lab.rounds):
        for n in AT_A_TIME:
            # There and back: who is measured just after whom must not be the same each time.
            for peer in peers if number % 2 == 0 else reversed(peers):
                if peer.slug in troubles:
                    continue
                try:
                    found = run(lab, peer, n)
                except Trouble as trouble:
                    troubles[peer.slug] = str(trouble)
                    rows[peer.slug] = {str(n): [] for n in AT_A_TIME}
                    print(f"  {peer.name}: {trouble}", flush=True)
                    continue
                rows[peer.slug][str(n)].append(found)
                print(f"  round {number + 1}, {n} at a time: {peer.name} {found:,.0f}/s", flush=True)
    return {"jobs": lab.jobs, "rows": rows, "manners": {peer.slug: peer.manner for peer in peers}, "troubles": troubles}


def run(lab: Lab, peer: Peer, n: int, kind: str = "noop") -> float:
    """Return how many jobs a second a worker does that runs `n` of them at a time."""
    jobs = round(lab.jobs * peer.pace)
    with lab.place(peer, jobs, kind) as place, place.working(n):
        return rate(place, jobs)


def rate(place: Place, jobs: int) -> float:
    """Return jobs a second between two counts on the server, by the server's clock."""
    with psycopg.connect(place.database, autocommit=True) as conn:
        seen: list[tuple[float, int]] = []

        def look() -> tuple[float, int]:
            query = f"select extract(epoch from clock_timestamp())::float8, ({place.peer.left})"
            at, left = one(conn.execute(query.encode()).fetchone())
            seen.append((at, jobs - left))
            return seen[-1]

        place.wait(lambda: look()[1] >= jobs * WARM, "a first tenth of the jobs", every=0.1)
        began, done_then = seen[-1]
        while True:
            time.sleep(0.2)
            at, done = look()
            if done >= jobs * OVER or at - began > LONGEST:
                return (done - done_then) / (at - began)


def one(row: Any) -> Any:
    """Return a row that must be there."""
    assert row is not None
    return row


def tell(facts: Facts) -> str:
    """Tell of it: the quickest first."""
    names = {peer.slug: peer for peer in all_peers()}
    quickest = sorted(facts["rows"], key=lambda slug: -statistics.median(facts["rows"][slug]["16"] or [0]))
    rows = [
        [
            names[slug].name,
            names[slug].manner,
            *(spread(facts["rows"][slug][str(n)]) or f"not measured: {facts['troubles'].get(slug)}" for n in AT_A_TIME),
        ]
        for slug in quickest
    ]
    return table(["jobs a second", "how it works", *(f"{n} at a time" for n in AT_A_TIME)], rows)


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
