"""Sixteen clients that enqueue a job a transaction, with the notification in it and without."""

from __future__ import annotations

from speed.lab import Facts, Lab
from speed.page import spread, table
from speed.parts import notify


def measure(lab: Lab) -> Facts:
    """Measure on a database of its own."""
    with lab.place(lab.peer("fencepost")) as place:
        return notify.measure(place.database)


def tell(facts: Facts) -> str:
    """Tell of it."""
    rows = [[f"{way} notifying", spread(found)] for way, found in facts["jobs_per_second"].items()]
    return table([f"{facts['clients']} clients", "jobs a second"], rows)
