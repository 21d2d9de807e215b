"""What keeps VACUUM from removing dead rows while a long job is held."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import Connection

from article.designs import leased, one_transaction
from article.lab import PATIENCE, Facts, Lab, notes, since
from article.page import Section, number
from article.page import seconds as secs
from fencepost import enqueue
from support.databases import Database
from support.waiting import wait_until

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "What a long job keeps VACUUM from"

JOBS = 5_000
TOLD = re.compile(r"tuples: (\d+) removed, (\d+) remain, (\d+) are dead but not yet removable")
REMOVABLE = re.compile(r"(\d+) dead item identifiers removed")
FILL = "insert into jobs (kind) select 'nothing' from generate_series(1, %s)"
OURS = {"Fencepost, job.transaction()": "holds", "Fencepost, transaction=True": "holds.transaction"}

Hold = Callable[[Connection[Any]], object]


def _lock(conn: Connection[Any]) -> None:
    conn.execute("begin")
    conn.execute(one_transaction.CLAIM)


def _write(conn: Connection[Any]) -> None:
    conn.execute(leased.CLAIM, [3600])
    conn.execute("begin")
    conn.execute(leased.WROTE, [1, 1])


def _read_repeatably(conn: Connection[Any]) -> None:
    conn.execute(leased.CLAIM, [3600])
    conn.execute("begin isolation level repeatable read")
    conn.execute("select count(*) from written")


def _read(conn: Connection[Any]) -> None:
    conn.execute(leased.CLAIM, [3600])
    conn.execute("begin")
    conn.execute("select count(*) from written")


def _lease(conn: Connection[Any]) -> None:
    conn.execute(leased.CLAIM, [3600])


HOLDS: dict[str, Hold] = {
    "one transaction, a row lock": _lock,
    "lease, and a transaction that has written": _write,
    "lease, and a REPEATABLE READ reader": _read_repeatably,
    "lease, and a READ COMMITTED reader, quiet": _read,
    "lease, and no transaction": _lease,
}


def measure(lab: Lab) -> Facts:
    """Hold one job in each way while another worker does the short ones; then ask VACUUM."""
    jobs = lab.count(JOBS, 20)
    facts: Facts = {"jobs": jobs, "rows": {}}
    for name, hold in HOLDS.items():
        with lab.database() as database:
            database.owner.execute("alter table jobs set (autovacuum_enabled = off)")
            database.owner.execute(FILL, [jobs + 1])
            with psycopg.connect(database.worker_url, autocommit=True) as holder:
                hold(holder)
                began = time.monotonic()
                with psycopg.connect(database.worker_url, autocommit=True) as conn:
                    for _ in range(jobs):
                        one_transaction.take(conn, lambda _: None, 0)
                took = since(began)
                facts["rows"][name] = {**_vacuum(database, "jobs"), "seconds": took}
    for name, kind in OURS.items():
        facts["rows"][name] = _fencepost(lab, kind, jobs)
    return facts


def _fencepost(lab: Lab, kind: str, jobs: int) -> Facts:
    with lab.database() as database:
        database.owner.execute("alter table fencepost.jobs set (autovacuum_enabled = off)")
        held = enqueue(database.owner, kind, priority=-1)
        with lab.supervisor(database.worker_url, concurrency=2) as supervisor, _released(supervisor):
            wait_until(lambda: notes(database, held), within=PATIENCE)
            with database.owner.transaction():
                database.owner.execute("select fencepost.enqueue('nothing') from generate_series(1, %s)", [jobs])
            done = "select count(*) from fencepost.jobs where status = 'done'"
            wait_until(lambda: database.value(done) >= jobs, within=PATIENCE, what="the end of the short jobs")
            worked = """
                select extract(epoch from max(r.finished_at) - min(r.started_at))::float8
                from fencepost.job_runs r where r.job_id <> %s"""
            return {**_vacuum(database, "fencepost.jobs"), "seconds": database.value(worked, [held])}


@contextmanager
def _released(supervisor: Any) -> Iterator[None]:
    try:
        yield
    finally:
        supervisor.put({"released": ""})


def _vacuum(database: Database, table: str) -> Facts:
    """VACUUM, and return what it says. What a search has already pruned to an identifier is counted, too."""
    said: list[str] = []
    with database.conn() as conn:
        conn.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
        conn.execute(f"vacuum (verbose, index_cleanup on) {table}")
    text = next(
        line for line in said if f'{table.rpartition(".")[2]}": finished' in line.replace(".", '"') or TOLD.search(line)
    )
    found, identifiers = TOLD.search(text), REMOVABLE.search(text)
    assert found is not None, text
    return {
        "removed": int(found[1]),
        "identifiers": int(identifiers[1]) if identifiers else 0,
        "not removable": int(found[3]),
    }


def tell(facts: Facts) -> Section:
    """Tell of it."""
    rows = facts["rows"]
    back = [name for name in HOLDS if rows[name]["not removable"] >= facts["jobs"]]
    free = [name for name in HOLDS if name not in back]
    ours, whole = (rows[name] for name in OURS)
    naive = [rows[name]["seconds"] for name in HOLDS]
    return Section(
        article="a long transaction that has written holds VACUUM back (a row lock is enough); one that has only read, under "
        "READ COMMITTED and quiet between statements, does not; a lease helps only if the long part runs outside of a "
        "transaction. Throughput did not show it yet: 6.6 s against 5.5 to 5.6 s.",
        here=f"of the {number(facts['jobs'])} rows that died meanwhile VACUUM may remove none beside: {'; '.join(back)}. It "
        f"may remove them beside: {'; '.join(free)}. The short jobs took {secs(min(naive))} to {secs(max(naive))}.",
        fencepost=f"keeps {number(ours['not removable'])} of them from it while a job is held between short transactions; one "
        f"that asks for `transaction=True` is one long transaction, and keeps {number(whole['not removable'])} (a job leaves "
        "two: one as it is claimed, one as it is finished).",
        head=["one job is held in", "dead, not removable", "removed", "the short jobs"],
        rows=[
            [name, number(row["not removable"]), number(row["removed"] + row["identifiers"]), secs(row["seconds"])]
            for name, row in rows.items()
        ],
    )


def draw(axes: Axes, facts: Facts) -> None:
    """Draw what could not be removed."""
    names = list(facts["rows"])[::-1]
    axes.barh(names, [facts["rows"][name]["not removable"] for name in names], color="#b33")
    axes.set_xlabel(f"dead rows that VACUUM could not remove after {number(facts['jobs'])} short jobs")
