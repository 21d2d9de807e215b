"""How long a failed job waits before its next attempt."""

from __future__ import annotations

from itertools import pairwise

from article.lab import PATIENCE, Facts, Lab, add, add_work, notes, state, wait_for
from article.page import Section
from article.page import seconds as secs
from support.databases import Database
from support.waiting import wait_until

TITLE = "Waits between attempts"

ATTEMPTS = 4
BACKOFF = 1.0
DESIGNS = {"one transaction, error handler": "handled", "claimed first, with a lease": "leased"}


def measure(lab: Lab) -> Facts:
    """Have a job raise four times, and look at when."""
    backoff = lab.seconds(BACKOFF, 0.1)
    facts: Facts = {"backoff": backoff, "rows": {}}
    for name, design in DESIGNS.items():
        with lab.database() as database:
            poison, behind = add(database, "raises", "ok")
            database.execute("update jobs set max_attempts = %s", [ATTEMPTS])
            with lab.workers(database.worker_url, design, "leave") as (worker,):
                worker.wait(PATIENCE)
            facts["rows"][name] = _facts(database, poison, behind, state(database, poison)[0])
    with lab.database() as database:
        poison, behind = add_work(database, "raises", "ok", max_attempts=ATTEMPTS)
        with lab.supervisor(database.worker_url, backoff=f"{backoff:g}s", poll="100ms"):
            status = wait_for(database, poison)
            wait_until(lambda: notes(database, behind), within=PATIENCE)
        facts["rows"]["Fencepost"] = _facts(database, poison, behind, status)
    return facts


def _facts(database: Database, poison: int, behind: int, status: str) -> Facts:
    starts = notes(database, poison)
    waited = notes(database, behind)[0] - starts[0]
    return {"gaps": [later - sooner for sooner, later in pairwise(starts)], "behind": waited, "status": status}


def tell(facts: Facts) -> Section:
    """Tell of it."""
    rows = facts["rows"]
    ours = rows["Fencepost"]
    longest = max(gap for name in DESIGNS for gap in rows[name]["gaps"])
    gaps = [secs(gap) for gap in ours["gaps"]]
    return Section(
        article="not measured; a failed job is first in line again at once.",
        here=f"{ATTEMPTS} attempts are over with at most {longest * 1000:.0f} ms between two: whatever was out of order a "
        "moment ago still is.",
        fencepost=f"with a first wait of {secs(facts['backoff'])} tries again after {', '.join(gaps[:-1])} and {gaps[-1]}: it "
        f"doubles, with jitter. The job behind started {secs(ours['behind'])} after the first attempt.",
        head=["", *[f"before attempt {number}" for number in range(2, ATTEMPTS + 1)], "the job behind started after"],
        rows=[[name, *[f"{gap:.3f} s" for gap in row["gaps"]], f"{row['behind']:.3f} s"] for name, row in rows.items()],
    )
