"""A job that takes longer than its lease."""

from __future__ import annotations

import subprocess
import time
from functools import partial

from article.lab import PATIENCE, Facts, Lab, add, add_work, all_there, notes, seconds_of_work, state, wait_for
from article.page import Section, times
from article.page import seconds as secs
from support.databases import Database
from support.waiting import wait_until

TITLE = "A job longer than its lease"

LEASE, WORK = 2.0, 3.0
DESIGNS = {"no fence": "leased", "fence": "fenced", "fence and heartbeat": "beating"}
OUR_RUN = """
select outcome, extract(epoch from finished_at - started_at)::float8 as took from fencepost.job_runs where job_id = %s"""
BOTH_STAY = "fence, and both workers look on"


def measure(lab: Lab) -> Facts:
    """Two workers look for it every tenth of a second: one takes it, and looks for no more; the other looks on."""
    work = lab.seconds(WORK, 0.9)
    lease = work * LEASE / WORK
    facts: Facts = {"lease": lease, "job": work, "rows": {}}
    for name, design in {**DESIGNS, BOTH_STAY: "fenced"}.items():
        how_long = "stay" if name == BOTH_STAY else "once"
        with lab.database() as database, lab.workers(database.worker_url, design, how_long, lease=lease, count=2) as both:
            wait_until(partial(all_there, database, 2), within=PATIENCE, what="both workers")
            (job,) = add(database, f"sleeps:{work:g}")
            wait_until(partial(_settled, database, job, both if how_long == "once" else []), within=PATIENCE)
            facts["rows"][name] = _facts(database, job, "jobs")
    # With this lease at every scale: of a much shorter one, a busy machine's delays would be most.
    with lab.database() as database:
        (job,) = add_work(database, f"sleeps:{WORK if lab.scale == 1 else LEASE * 1.25:g}")
        settings = {"lease": f"{LEASE:g}s", "heartbeat": f"{LEASE / 4:g}s", "poll": "100ms", "sweep": "100ms"}
        with lab.supervisor(database.worker_url, **settings) as one:
            wait_until(lambda: notes(database, job), within=PATIENCE)
            with lab.supervisor(database.worker_url, **settings) as other:
                wait_for(database, job)
                assert one.is_alive()
                assert other.is_alive()
        facts["rows"]["Fencepost, two supervisors"] = _facts(database, job, "fencepost.jobs")
    return {**facts, "hung": _hung(lab, facts["lease"])}


def _hung(lab: Lab, lease: float) -> Facts:
    """Have a job hang with its heartbeat, for three leases; and one in Fencepost, whose max runtime is a lease."""
    facts: Facts = {"watched": lease * 3}
    with lab.database() as database:
        (job,) = add(database, "sleeps:600")
        with lab.workers(database.worker_url, "beating", lease=lease):
            wait_until(lambda: notes(database, job), within=PATIENCE)
            time.sleep(facts["watched"])
            facts["held"] = database.value("select locked_until > clock_timestamp() from jobs where id = %s", [job])
    with lab.database() as database:
        (job,) = add_work(database, "sleeps:600", max_attempts=1, max_runtime=lease)
        with lab.supervisor(database.worker_url):
            facts["status"] = wait_for(database, job)
        (row,) = database.execute(OUR_RUN, [job])
        facts |= {"outcome": row.outcome, "took": row.took, "max_runtime": lease}
    return facts


def _settled(database: Database, job: int, leaving: list[subprocess.Popen[bytes]]) -> bool:
    """Whether the job is done and none of its runs goes on; those that leave after one have left."""
    runs = len(notes(database, job))
    left = sum(worker.poll() is not None for worker in leaving)
    return state(database, job)[0] == "done" and runs == len(notes(database, job, "end")) and (not leaving or left == runs)


def _facts(database: Database, job: int, table: str) -> Facts:
    return {
        "runs": len(notes(database, job)),
        "seconds": seconds_of_work(database, job),
        "rows": database.value("select count(*) from written where job_id = %s", [job]),
        "status": state(database, job, table)[0],
    }


def tell(facts: Facts) -> Section:
    """Tell of it."""
    rows, hung = facts["rows"], facts["hung"]
    held = "still stood" if hung["held"] else "was over"
    none, fence, beat, both, ours = (rows[name] for name in (*DESIGNS, BOTH_STAY, "Fencepost, two supervisors"))
    return Section(
        article="without a fence both runs finish; with it the first one's finish touches no row and its transaction is "
        "undone, but both have worked three seconds and a mail would have gone twice; only a heartbeat keeps the second run "
        "away.",
        here=f"a job of {secs(facts['job'])} under a lease of {secs(facts['lease'])} has {times(none['runs'])} without a "
        f"fence, and rows written: {none['rows']}; with it {times(fence['runs'])}, {secs(fence['seconds'])} of work, and rows "
        f"written: {fence['rows']}; with the heartbeat {times(beat['runs'])}. And if the first worker, refused, looks for "
        f"work again, it may find the same job: {times(both['runs'])}, {secs(both['seconds'])} of work.",
        fencepost=f"beats from the supervisor, which no job can hold up: {times(ours['runs'])}, {secs(ours['seconds'])} of "
        f"work, rows written: {ours['rows']}. A hung job does not keep its lease by that: with a max runtime of "
        f"{secs(hung['max_runtime'])} it ended as {hung['outcome']} after {secs(hung['took'])}; with the naive "
        f"heartbeat its lease {held} after {secs(hung['watched'])}.",
        head=["", "runs", "seconds of work", "rows written", "in the end"],
        rows=[[name, str(row["runs"]), f"{row['seconds']:.1f}", str(row["rows"]), row["status"]] for name, row in rows.items()],
    )
