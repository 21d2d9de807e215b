"""What a claim costs while a transaction stays open elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from psycopg import Connection

from article.designs.shortest import DELETE, MARK
from article.lab import Facts, Lab, since
from article.page import Section, ms, number
from fencepost.job import Ended, Outcome
from fencepost.jobs.claim import Claim, claim, lanes
from fencepost.jobs.finish import finish
from fencepost.worker.lanes import Lanes
from support.databases import Database

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Claims behind a transaction that stays open"

BLOCKS, BLOCK = 10, 10_000
"""And one more block once the transaction has ended."""
LIMIT, ALL_IN = 600.0, 1500.0
"""Seconds: a design that has taken so long begins no further block; nor does any once all have."""

FILL = {
    "queue": "insert into queue select from generate_series(1, %s)",
    "marked": "insert into marked (status) select 'queued' from generate_series(1, %s)",
    "fencepost.jobs": "select count(fencepost.enqueue('nothing')) from generate_series(1, %s)",
}
WRITES = ("begin", "insert into notes (job_id, attempt, what) values (0, 0, 'stays open')")
READS = ("begin isolation level repeatable read", "select count(*) from notes")

Claimer = Callable[[], float]
"""Claims one job, and returns how many seconds that took."""


def _once(query: str) -> Callable[[Connection[Any]], Claimer]:
    def claimer(conn: Connection[Any]) -> Claimer:
        def take() -> float:
            began = time.perf_counter()
            row = conn.execute(query).fetchone()
            took = time.perf_counter() - began
            assert row is not None
            return took

        return take

    return claimer


def _fencepost(conn: Connection[Any]) -> Claimer:
    """Claim as a worker does, from behind the last key and now and then from the start; then finish, untimed."""
    known, numbers, tried = Lanes(("default",)), count(1), [False]

    def ask() -> Claim | None:
        return claim(
            conn,
            "fencepost",
            name=f"lab:{next(numbers)}",
            lanes=known.in_order(),
            max_attempts={"nothing": 3},
            lease=timedelta(seconds=60),
        )

    def search() -> Claim | None:
        if tried[0] and not known.may_look_at_all(time.monotonic(), busy=True):
            found = ask()
            if found is not None:
                return found
        began = time.monotonic()
        known.look_at_all(lanes(conn, "fencepost", ["default"]))
        found = ask()
        known.looked_at_all(time.monotonic(), time.monotonic() - began)
        tried[0] = True
        return found

    def take() -> float:
        began = time.perf_counter()
        found = search()
        took = time.perf_counter() - began
        assert found is not None
        known.took(found)
        assert finish(conn, "fencepost", found.id, found.fence, found.name, Outcome(Ended.done))
        return took

    return take


DESIGNS: dict[str, tuple[str, Callable[[Connection[Any]], Claimer], tuple[str, ...]]] = {
    "delete, nothing open": ("queue", _once(DELETE), ()),
    "delete": ("queue", _once(DELETE), WRITES),
    "Fencepost": ("fencepost.jobs", _fencepost, WRITES),
    "status = 'done'": ("marked", _once(MARK), WRITES),
    "delete, REPEATABLE READ reader": ("queue", _once(DELETE), READS),
    "Fencepost, REPEATABLE READ reader": ("fencepost.jobs", _fencepost, READS),
}
"""By name: the table, how it is claimed from, and what stays open meanwhile."""
FREE, DELETED, OURS, MARKED, READER, OURS_READER = DESIGNS


def measure(lab: Lab) -> Facts:
    """Take all jobs of a queue one by one, block by block."""
    block = lab.count(BLOCK, 5)
    facts: Facts = {"block": block, "rows": {}}
    began = time.monotonic()
    for name, (table, claimer, open_elsewhere) in DESIGNS.items():
        limit = min(LIMIT, ALL_IN - since(began))
        if limit <= 0:
            break
        with lab.database() as database, database.conn() as holder:
            database.owner.execute(FILL[table], [block * (BLOCKS + 1)])
            database.owner.execute(f"analyze {table}")
            for statement in open_elsewhere:
                holder.execute(statement)
            with database.worker_conn() as conn:
                explained = DELETE if table == "queue" else ""
                facts["rows"][name] = _blocks(claimer(conn), block, limit, holder, database, explained)
    return facts


def _blocks(take: Claimer, block: int, limit: float, holder: Connection[Any], database: Database, explained: str) -> Facts:
    began, medians, means, buffers = time.monotonic(), [], [], None
    for place in range(BLOCKS):
        if since(began) > limit:
            break
        took = [take() for _ in range(block)]
        medians.append(median(took) * 1000)
        means.append(fmean(took) * 1000)
        if explained and place == BLOCKS // 2 - 1:
            buffers = _explain(database, explained)
    all_in = since(began)
    holder.execute("rollback")
    after = median(take() for _ in range(block)) * 1000
    return {"median": medians, "mean": means, "after": after, "half": buffers, "seconds": all_in}


def _explain(database: Database, query: str) -> Facts:
    """Return the buffers and milliseconds of one claim, which is rolled back."""
    with database.conn(autocommit=False) as conn:
        row = conn.execute(f"explain (analyze, buffers, format json) {query}").fetchone()
        assert row is not None
        (plan,) = row[0]
        conn.rollback()
    return {"buffers": plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"], "ms": plan["Execution Time"]}


def tell(facts: Facts) -> Section:
    """Tell of it."""
    rows, block = facts["rows"], facts["block"]
    free, deleted, ours, marked, reader, theirs = (rows.get(name) for name in DESIGNS)
    reached = {name: len(rows[name]["median"]) if name in rows else 0 for name in DESIGNS}
    stopped = [f"{name} up to {number(blocks * block)}" for name, blocks in reached.items() if blocks < BLOCKS]
    left = f" (For want of time not all were taken: {'; '.join(stopped)}.)" if stopped else ""
    return Section(
        article="slower each block in a straight line, 0.7 to 8.3 ms; after 50,000 a claim takes 654 buffers and 4.1 ms with "
        "the transaction open, 42 and 0.05 ms without; a status with a partial index is the same line (8.34 ms), and so is a "
        "REPEATABLE READ reader; once it has ended, the next block is at 0.69 ms.",
        here=f"{_span(deleted)} with a delete, {_span(marked)} with a status, {_span(reader)} behind a reader, {_span(free)} "
        f"with nothing open; after {number(block * BLOCKS // 2)} one claim takes {_half(deleted)} with the transaction open, "
        f"{_half(free)} without; once it has ended, {ms(rows[DELETED]['after'])}.{left}",
        fencepost=f"searches from behind the last key that it took, and from the start only now and then: {_span(ours)} "
        f"behind the transaction, {_span(theirs)} behind the reader; the mean, which has those looks in it, goes from "
        f"{_span(ours, 'mean')} and from {_span(theirs, 'mean')}. Its finish is another statement, not counted here.",
        head=["median ms of a claim, by jobs taken", *[_thousands(block * (place + 1)) for place in range(BLOCKS)], "ended"],
        rows=[
            [name, *[f"{value:.2f}" for value in row["median"]], *[""] * (BLOCKS - len(row["median"])), f"{row['after']:.2f}"]
            for name, row in rows.items()
        ],
    )


def draw(axes: Axes, facts: Facts) -> None:
    """Draw a line a design."""
    styles = {OURS: ("#161", "-"), OURS_READER: ("#161", ":"), FREE: ("#888", "-")}
    naive = iter(["-", "--", ":"])
    for name, row in facts["rows"].items():
        colour, style = styles.get(name) or ("#b33", next(naive))
        taken = [facts["block"] * (place + 1) for place in range(len(row["median"]))]
        axes.plot(taken, row["median"], style, color=colour, label=name)
    axes.set_xlabel("jobs taken while a transaction is open elsewhere")
    axes.set_ylabel("ms a claim, median of the block")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(lambda value, _: number(value))
    axes.legend(frameon=False)


def _span(row: Facts | None, which: str = "median") -> str:
    return f"{row[which][0]:.2f} to {ms(row[which][-1])}" if row else "(not measured)"


def _half(row: Facts | None) -> str:
    return f"{number(row['half']['buffers'])} buffers and {ms(row['half']['ms'])}" if row and row["half"] else "(not measured)"


def _thousands(value: int) -> str:
    return f"{value // 1000}k" if value >= 1000 else str(value)
