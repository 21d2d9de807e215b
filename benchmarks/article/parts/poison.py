"""A job that always raises, handed out ten times."""

from __future__ import annotations

import psycopg

from article.designs import handled, leased, one_transaction
from article.lab import Facts, Lab, add, add_work, in_process, notes, state, wait_for
from article.page import Section, times

TITLE = "A job that always raises"

TURNS = 10
DESIGNS = {
    "one transaction": one_transaction.take,
    "one transaction, error handler": handled.take,
    "claimed first, with a lease": leased.take,
}


def measure(lab: Lab) -> Facts:
    """Take ten times from a queue of a job that raises and a normal one, in the order of their ids."""
    facts: Facts = {}
    for name, take in DESIGNS.items():
        with lab.database() as database, psycopg.connect(database.worker_url, autocommit=True) as conn:
            poison, behind = add(database, "raises", "ok")
            act = in_process(database, conn)
            behind_at = 0
            for turn in range(1, TURNS + 1):
                try:
                    took = take(conn, act, 60)
                except psycopg.errors.DivisionByZero:
                    took = None
                behind_at = behind_at or (turn if took == behind else 0)
            status, attempts = state(database, poison)
            facts[name] = {
                "runs": len(notes(database, poison)),
                "attempts": attempts,
                "status": status,
                "recorded": database.value("select count(*) from job_runs where job_id = %s", [poison]),
                "behind": state(database, behind)[0],
                "behind_after": len(
                    [at for at in notes(database, poison) if notes(database, behind) and at < notes(database, behind)[0]]
                ),
            }
    with lab.database() as database:
        poison, behind = add_work(database, "raises", "ok")
        with lab.supervisor(database.worker_url, backoff=f"{lab.seconds(1, 0.1):g}s"):
            wait_for(database, poison)
            wait_for(database, behind)
        status, attempts = state(database, poison, "fencepost.jobs")
        first = notes(database, behind)[0]
        facts["Fencepost"] = {
            "runs": len(notes(database, poison)),
            "attempts": attempts,
            "status": status,
            "recorded": database.value("select count(*) from fencepost.job_runs where job_id = %s", [poison]),
            "behind": state(database, behind, "fencepost.jobs")[0],
            "behind_after": len([at for at in notes(database, poison) if at < first]),
        }
    return facts


def tell(facts: Facts) -> Section:
    """Tell of it."""
    naive, counted, lease, ours = (facts[name] for name in (*DESIGNS, "Fencepost"))
    return Section(
        article="in one transaction it is handed out 10 of 10 times, never counted, the job behind never runs, and its row in "
        "job_runs is rolled back; with an error handler that counts in a new transaction it is dead after three, and the "
        "queue moves on.",
        here=f"{naive['runs']} of {TURNS} times with {naive['attempts']} attempts counted, the job behind {naive['behind']}; "
        f"with the handler {counted['status']} after {counted['runs']}, with a lease {lease['status']} after "
        f"{lease['runs']}: but the job behind waits for all of them ({counted['behind_after']} and {lease['behind_after']} "
        "runs), since what failed is first in line again at once.",
        fencepost=f"has counted each of {ours['runs']} runs before it began, and the job is {ours['status']}; a failed job "
        f"waits before its next attempt, so that the one behind it ran after {times(ours['behind_after'])}.",
        head=["", "runs", "attempts counted", "in the end", "runs on record", "the job behind", "which waited for"],
        rows=[
            [
                name,
                str(row["runs"]),
                str(row["attempts"]),
                row["status"],
                str(row["recorded"]),
                row["behind"],
                times(row["behind_after"]) if row["behind"] == "done" else "for ever",
            ]
            for name, row in facts.items()
        ],
    )
