"""A job that ends its process."""

from __future__ import annotations

import time

import psycopg

from article.designs import leased
from article.lab import PATIENCE, Facts, Lab, add, add_work, notes, state, wait_for
from article.page import Section

TITLE = "A job that ends its process"

CRASHES = 10
LEASE = 1.0
DESIGNS = {"one transaction": "one_transaction", "claimed first, with a lease": "leased"}
SWEPT = "claimed first, with a lease and a sweep"


def measure(lab: Lab) -> Facts:
    """Start a new worker after each crash: at once, or when the lease is over."""
    facts: Facts = {}
    for name, design in DESIGNS.items():
        lease = lab.seconds(LEASE, 0.1)
        with lab.database() as database:
            poison, behind = add(database, "exits", "ok")
            died = 0
            for _ in range(lab.count(CRASHES, 4)):
                with lab.workers(database.worker_url, design, "leave", lease=lease) as (worker,):
                    code = worker.wait(PATIENCE)
                if code == 0:
                    break
                died += 1
                if design == "leased":
                    time.sleep(lease * 1.1)
            status, attempts = state(database, poison)
            facts[name] = {
                "tried": lab.count(CRASHES, 4),
                "died": died,
                "runs": len(notes(database, poison)),
                "attempts": attempts,
                "status": status,
                "behind": state(database, behind)[0],
            }
            if design == "leased":
                with psycopg.connect(database.worker_url, autocommit=True) as conn:
                    leased.sweep(conn)
                facts[SWEPT] = {**facts[name], "status": state(database, poison)[0]}
    with lab.database() as database:
        poison, behind = add_work(database, "exits", "ok")
        with lab.supervisor(database.worker_url, backoff=f"{lab.seconds(0.5, 0.1):g}s") as supervisor:
            wait_for(database, poison)
            wait_for(database, behind)
            lives = supervisor.is_alive()
        status, attempts = state(database, poison, "fencepost.jobs")
        outcomes = database.execute("select outcome from fencepost.job_runs where job_id = %s", [poison])
        facts["Fencepost"] = {
            "died": len(notes(database, poison)),
            "runs": len(notes(database, poison)),
            "attempts": attempts,
            "status": status,
            "behind": state(database, behind, "fencepost.jobs")[0],
            "outcomes": [row.outcome for row in outcomes],
            "supervisor lives": lives,
            "last error": database.value("select last_error from fencepost.jobs where id = %s", [poison]),
        }
    return facts


def tell(facts: Facts) -> Section:
    """Tell of it."""
    naive, lease, swept, ours = (facts[name] for name in (*DESIGNS, SWEPT, "Fencepost"))
    crashed = ours["outcomes"].count("crashed")
    return Section(
        article="in one transaction 10 of 10 workers die, attempts 0; claimed first, with a lease, it is no longer eligible "
        "after three, and the queue moves on, but its row stays running until a sweep (proposed there, not run).",
        here=f"{naive['died']} of {naive['tried']} workers die in one transaction, with {naive['attempts']} attempts counted "
        f"and the job behind {naive['behind']}; with the lease {lease['died']}, and the row stays {lease['status']} with "
        f"{lease['attempts']} attempts; the sweep makes it {swept['status']}.",
        fencepost=f"lost {ours['died']} workers, filled the slot each time, and has {crashed} of {ours['runs']} runs on "
        f"record as crashed (“{ours['last error']}”); the job is {ours['status']} without a further look, the one behind it "
        f"{ours['behind']}, and the supervisor {'lives on' if ours['supervisor lives'] else 'is gone'}.",
        head=["", "workers that died", "attempts counted", "in the end", "the job behind"],
        rows=[
            [
                name,
                f"{row['died']} of {row['tried']}" if row.get("died") == row.get("tried") else str(row["died"]),
                str(row["attempts"]),
                f"{row['status']}, for no one" if row["status"] == "running" else row["status"],
                row["behind"],
            ]
            for name, row in facts.items()
        ],
    )
