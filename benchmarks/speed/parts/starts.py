"""How long it takes from before the call that enqueues until the job starts, where a worker has nothing else to do."""

from __future__ import annotations

import json
import statistics

from peers.peer import Trouble

from speed.bars import OURS
from speed.lab import Facts, Lab
from speed.page import number, table
from speed.parts import latency
from speed.peer import Peer, all_peers

AT_A_TIME = 4
STARTS = 200
FIRST = 10
"""Not counted: connections are opened, and what is imported late."""


def measure(lab: Lab) -> Facts:
    """Have each peer enqueue jobs one by one."""
    rows, troubles = {}, {}
    for peer in lab.peers:
        if peer.latency:
            try:
                rows[peer.slug] = _ours(lab, peer) if peer.slug == OURS else _starts(lab, peer)
            except Trouble as trouble:
                troubles[peer.slug] = str(trouble)
                print(f"  {peer.name}: {trouble}", flush=True)
            else:
                print(f"  {peer.name}: {rows[peer.slug]}", flush=True)
    return {"starts": STARTS, "rows": rows, "troubles": troubles}


def _ours(lab: Lab, peer: Peer) -> dict[str, float]:
    with lab.place(peer) as place:
        return latency.measure(place.database, jobs=STARTS, workers=AT_A_TIME)


def _starts(lab: Lab, peer: Peer) -> dict[str, float]:
    # A job that does nothing tells that the worker is at work.
    with lab.place(peer, 1) as place, place.working(AT_A_TIME):
        place.wait(lambda: place.ask(peer.left) == 0, "a first job")
        given = json.loads(place.run([*peer.program, "latency"], str(STARTS + FIRST)).splitlines()[-1])
        place.wait(lambda: len(place.stamps()) == len(given), "the start of all jobs")
        began = place.stamps()
    took = sorted((began[job] - at) / 1e6 for job, at in enumerate(given) if job >= FIRST)
    return {"p50": statistics.median(took), "p99": statistics.quantiles(took, n=100)[98]}


def tell(facts: Facts) -> str:
    """Tell of it: the quickest first."""
    names = {peer.slug: peer.name for peer in all_peers()}
    quickest = sorted(facts["rows"].items(), key=lambda row: row[1]["p50"])
    rows = [[names[slug], number(row["p50"]), number(row["p99"])] for slug, row in quickest]
    return table(["enqueue to start, ms", "p50", "p99"], rows)
