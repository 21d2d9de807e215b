"""A job that always raises, handed out ten times."""

from __future__ import annotations

import psycopg

from article.designs import handled, leased, one_transaction
from article.lab import Facts, Lab, add, add_work, in_process, notes, state, wait_for
from article.page import Section, times
from support.databases import Database

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
            for _ in range(TURNS):
                try:
                    take(conn, act, 60)
                except psycopg.errors.DivisionByZero:
                    pass  # There is no handler.
            facts[name] = _facts(database, poison, behind, "jobs", "job_runs")
    with lab.database() as database:
        poison, behind = add_work(database, "raises", "ok")
        with lab.supervisor(database.worker_url, backoff=f"{lab.seconds(1, 0.1):g}s"):
            wait_for(database, poison)
            wait_for(database, behind)
        facts["Fencepost"] = _facts(database, poison, behind, "fencepost.jobs", "fencepost.job_runs")
    return facts


def _facts(database: Database, poison: int, behind: int, jobs: str, runs: str) -> Facts:
    starts, behind_at = notes(database, poison), notes(database, behind)
    status, attempts = state(database, poison, jobs)
    return {
        "runs": len(starts),
        "attempts": attempts,
        "status": status,
        "recorded": database.value(f"select count(*) from {runs} where job_id = %s", [poison]),
        "behind": state(database, behind, jobs)[0],
        "behind_after": len([at for at in starts if behind_at and at < behind_at[0]]),
    }


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
