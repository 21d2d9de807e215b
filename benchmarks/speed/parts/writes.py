"""Jobs that write a row in the transaction that also finishes them, four at a time, beside the same statements by pgbench."""

from __future__ import annotations

from speed.lab import Facts, Lab
from speed.page import spread, table
from speed.parts.throughput import run

AT_A_TIME = 4
SLUGS = ("fencepost", "pgbench_writes")


def measure(lab: Lab) -> Facts:
    """Have both one after the other, again and again."""
    rows: dict[str, list[float]] = {slug: [] for slug in SLUGS}
    for number in range(lab.rounds):
        for slug in SLUGS if number % 2 == 0 else reversed(SLUGS):
            rows[slug].append(run(lab, lab.peer(slug), AT_A_TIME, "row"))
            print(f"  {slug} {rows[slug][-1]:,.0f}/s", flush=True)
    return {"at a time": AT_A_TIME, "rows": rows}


def tell(facts: Facts) -> str:
    """Tell of it."""
    names = {"fencepost": "Fencepost, `transaction=True`", "pgbench_writes": "pgbench, two round trips a job"}
    rows = [[names[slug], spread(found)] for slug, found in facts["rows"].items()]
    return table(["", f"jobs a second, {facts['at a time']} at a time"], rows)
