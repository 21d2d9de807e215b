"""A hundred thousand jobs in one transaction, by `enqueue_many` and by a bare COPY into the same table."""

from __future__ import annotations

from speed.lab import Facts, Lab
from speed.page import spread, table
from speed.parts import enqueue


def measure(lab: Lab) -> Facts:
    """Measure on a database of its own."""
    with lab.place(lab.peer("fencepost")) as place:
        return enqueue.measure(place.database)


def tell(facts: Facts) -> str:
    """Tell of it."""
    rows = [[name, spread([facts["jobs"] / seconds for seconds in took])] for name, took in facts["seconds"].items()]
    return table(["", "jobs a second"], rows)
