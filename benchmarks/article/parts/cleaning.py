"""What it costs to clean a session after each job."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

import psycopg
from psycopg import Connection
from psycopg_pool import ConnectionPool

from article.lab import Facts, Lab
from article.page import Section, ms, number
from fencepost import enqueue
from fencepost.jobs import transaction as ours
from fencepost.jobs.claim import Lane, claim
from fencepost.jobs.cleaning import Cleaning
from support.databases import Database

TITLE = "The cost of cleaning up"

JOBS, DROPPED, COSTLY = 2_000, 200, 300
"""Jobs a variant, of which the first are not counted; and of the variant that opens a connection for each."""
TENANT = "100"
SET = "select set_config('app.tenant', %s, %s)"
WORK = "select count(*) from invoices"
START = datetime.min.replace(tzinfo=UTC)

Reset = Callable[[Connection[Any]], None] | None


def _reset_and_commit(conn: Connection[Any]) -> None:
    conn.execute("reset app.tenant")
    conn.commit()


def _reset_alone(conn: Connection[Any]) -> None:
    conn.execute("reset app.tenant")


def _discard(conn: Connection[Any]) -> None:
    conn.autocommit = True
    conn.execute("discard all")
    conn.autocommit = False


VARIANTS: dict[str, tuple[bool, Reset, int | None]] = {
    "session setting, no cleaning: it leaks": (False, None, 5),
    "local setting, no cleaning": (True, None, 5),
    "RESET and commit": (False, _reset_and_commit, 5),
    "DISCARD ALL": (False, _discard, 5),
    "DISCARD ALL, prepare_threshold=None": (False, _discard, None),
    "RESET without commit": (False, _reset_alone, 5),
}
"""By name: whether it is set locally, what the pool does when a connection comes back, and psycopg's prepare_threshold."""
LEAKING, LOCAL, _, DISCARD, UNPREPARED, UNCOMMITTED = VARIANTS
OURS = "Fencepost: begin, work, fence and commit, session made as new"
JOINED = "Fencepost's, made as new in the message of the next begin"
BARE = "Fencepost's, not made as new"


def measure(lab: Lab) -> Facts:
    """Run each variant twice, and keep the second."""
    facts: Facts = {}
    with lab.database() as database:
        for _ in range(2):
            for name, (local, reset, threshold) in VARIANTS.items():
                full = COSTLY if name == UNCOMMITTED else JOBS
                facts[name] = _pooled(database, lab.count(full, 20), local=local, reset=reset, threshold=threshold)
            for name in (OURS, JOINED, BARE):
                facts[name] = _fencepost(database, lab.count(JOBS, 20), name)
    return facts


def _pooled(database: Database, jobs: int, *, local: bool, reset: Reset, threshold: int | None) -> Facts:
    took: list[float] = []
    error, warnings = "", _Warnings()
    logging.getLogger("psycopg.pool").addHandler(warnings)
    options = {"prepare_threshold": threshold}
    try:
        with ConnectionPool(database.worker_url, min_size=1, max_size=1, kwargs=options, reset=reset) as pool:
            pool.wait()
            for _ in range(jobs):
                began = time.perf_counter()
                with pool.connection() as conn:
                    conn.execute(SET, [TENANT, local])
                    conn.execute(WORK)
                took.append(time.perf_counter() - began)
            with pool.connection():  # The last one is there again.
                connections = pool.get_stats()["connections_num"]
    except psycopg.Error as failed:
        error, connections = f"{failed.sqlstate}: {str(failed).splitlines()[0]}", 1
    finally:
        logging.getLogger("psycopg.pool").removeHandler(warnings)
    return {**_times(took), "jobs": len(took), "connections": connections, "error": error, "warnings": warnings.seen}


def _fencepost(database: Database, jobs: int, name: str) -> Facts:
    """Send what a worker sends for a job's transaction, without the claim and the finish."""
    enqueue(database.owner, "nothing", tenant=TENANT)
    took: list[float] = []
    with database.worker_conn(prepare_threshold=None) as conn, database.worker_conn() as claims:
        first = Lane("default", 0, START, 0)
        held = claim(claims, "fencepost", name="lab:1", lanes=[first], max_attempts={"nothing": 1}, lease=timedelta(hours=1))
        assert held is not None
        run = ours.Held(held.id, held.fence, held.name)
        context = ours.Context("app.tenant", TENANT, "", 60_000)
        transactions = ours.Transactions()
        transactions.cleaning = cleaning = Cleaning(conn, "fencepost", "app.tenant")
        for _ in range(jobs):
            began = time.perf_counter()
            transactions.begin(conn, "fencepost", run, context)
            conn.execute(WORK)
            transactions.commit(conn, "fencepost", run)
            if name == OURS:
                cleaning.clean(thoroughly=False)
            elif name == JOINED:
                cleaning.put_off(lambda _: None)
            took.append(time.perf_counter() - began)
    # Out of the way of the next.
    database.execute("delete from fencepost.jobs")
    return {**_times(took), "jobs": jobs, "connections": 1, "error": "", "warnings": 0}


def _times(took: list[float]) -> Facts:
    counted = took[len(took) * DROPPED // JOBS :] if len(took) > 10 else took
    return {"ms": median(counted) * 1000 if counted else None}


class _Warnings(logging.Handler):
    """Counts what the pool says in its log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.seen = 0

    def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002  # that it is there is all
        self.seen += 1


def tell(facts: Facts) -> Section:
    """Tell of it."""
    leaking, local, discard, unprepared, lost, fencepost, joined, bare = (
        facts[name] for name in (LEAKING, LOCAL, DISCARD, UNPREPARED, UNCOMMITTED, OURS, JOINED, BARE)
    )
    died = f"fails at job {discard['jobs'] + 1} ({discard['error']})" if discard["error"] else "goes through, with this psycopg"
    return Section(
        article="0.33 ms a job with the leak, 0.35 ms with a local setting and no cleaning, the cheapest right one; DISCARD "
        "ALL fails at the 7th job, over prepared statements, and works without them; a RESET without commit makes the pool "
        "throw away each connection: 301 for 300 jobs, 8.9 ms a job.",
        here=f"{ms(leaking['ms'])} with the leak, {ms(local['ms'])} with the local setting; DISCARD ALL {died}, and takes "
        f"{ms(unprepared['ms'])} without prepared statements; RESET without commit takes {number(lost['connections'])} "
        f"connections for {number(lost['jobs'])} jobs, {ms(lost['ms'])} each, and {number(lost['warnings'])} warnings in the "
        "log.",
        fencepost="sets the tenant locally, fences the commit, looks what the job has left and makes the session as new, by "
        f"all that DISCARD ALL does: {ms(fencepost['ms'])} a job, or {ms(joined['ms'])} where the next one is there already "
        f"and soon begins a transaction, so that both travel together; without the last two it would be {ms(bare['ms'])}.",
        head=["", "ms a job", "jobs", "connections", "warnings", "error"],
        rows=[
            [
                name,
                "" if row["ms"] is None else f"{row['ms']:.2f}",
                number(row["jobs"]),
                number(row["connections"]),
                number(row["warnings"]),
                row["error"],
            ]
            for name, row in facts.items()
        ],
    )
