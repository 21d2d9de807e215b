"""A claim costs the same whatever lies in the table: a backlog, finished jobs, and what an old snapshot keeps from vacuum.

Each measurement takes an owner's URL of a database that is its own, makes schemas there and drops them. What it sends are the
package's own functions; buffers are what the server's auto_explain tells of the statements that these send.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from statistics import median
from typing import Any, LiteralString

import psycopg
from psycopg import Connection, sql
from psycopg.errors import Diagnostic

from fencepost.job import Ended, Outcome
from fencepost.jobs.claim import Claim, claim, lanes
from fencepost.jobs.finish import finish
from fencepost.jobs.migrate import migrate
from fencepost.jobs.quick import QuickConnection
from fencepost.jobs.sql import in_schema
from fencepost.worker.lanes import Lanes

Facts = dict[str, Any]

KIND = "nothing"
QUEUES = ("default", "mail", "bulk")
CLAIMS = 600
"""So many are timed; and as many jobs more are in an almost empty table."""

MIXED = """
insert into fencepost.jobs (kind, queue, priority, run_at)
select %(kind)s, (%(queues)s::text[])[1 + n %% 3], n / 3 %% 3,
    case when n %% 5 = 4 then now() + n %% 1000 * interval '1 hour' else now() - interval '1 hour' + n * interval '1 us' end
from generate_series(1, %(jobs)s) n"""
"""Three queues, three priorities, and every fifth job is scheduled for later."""
PLAIN = """
insert into fencepost.jobs (kind, run_at)
select %(kind)s, now() - interval '1 hour' + n * interval '1 us' from generate_series(1, %(jobs)s) n"""
FINISHED = """
insert into fencepost.jobs (kind, status, attempts, max_attempts, fence, started_at, finished_at)
select %(kind)s, 'done', 1, 5, 1, now(), now() from generate_series(1, %(jobs)s)"""
LANES = """
insert into fencepost.jobs (kind, queue, priority)
select %(kind)s, (%(queues)s::text[])[1 + n %% 3], n / 3 from generate_series(1, %(jobs)s) n"""
TRIES = 3
"""Before the first answers a session has read the catalogs; and a new row finds its place only once."""
EXPLAIN = """
load 'auto_explain';
set auto_explain.log_min_duration = 0;
set auto_explain.log_analyze = on;
set auto_explain.log_buffers = on;
set auto_explain.log_format = json;
set auto_explain.log_level = notice"""


@dataclass
class Worker:
    """Claims as a worker does: from behind the last keys, and now and then from the start; and finishes."""

    conn: Connection[Any]
    schema: str
    queues: tuple[str, ...] = ("default",)
    kind: str = KIND
    known: Lanes = field(init=False)
    looks: int = 0
    _names: Iterator[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        self.known = Lanes(self.queues)

    def take(self) -> float:
        """Claim one job and finish it; return how many seconds the claim took, with the look at the whole if it was time."""
        began = time.perf_counter()
        found = self._search()
        took = time.perf_counter() - began
        assert found is not None, "there was no job to claim"
        assert finish(self.conn, self.schema, found.id, found.fence, found.name, Outcome(Ended.done))
        return took

    def look(self) -> None:
        """Look at the whole."""
        self.known.look_at_all(lanes(self.conn, self.schema, self.queues))

    def claim(self) -> Claim | None:
        """Claim one job from behind the last keys."""
        found = claim(
            self.conn,
            self.schema,
            name=f"bench:{next(self._names)}",
            lanes=self.known.in_order(),
            max_attempts={self.kind: 5},
            lease=timedelta(seconds=60),
        )
        if found is not None:
            self.known.took(found)
        return found

    def _search(self) -> Claim | None:
        if self.looks and not self.known.may_look_at_all(time.monotonic(), busy=True):
            return self.claim()
        began = time.monotonic()
        self.look()
        found = self.claim()
        self.known.looked_at_all(time.monotonic(), time.monotonic() - began)
        self.looks += 1
        return found


def measure(url: str, scale: float = 1.0) -> Facts:
    """Measure all of it: at scale 1 with ten million jobs that wait, and a hundred thousand that are taken one by one."""

    def jobs(full: int) -> int:
        return max(4 * CLAIMS, round(full * scale))

    return {
        "backlog": backlog(url, jobs(10_000_000)),
        "finished": finished(url, [0, jobs(100_000), jobs(1_000_000)]),
        "snapshot": behind_a_snapshot(url, jobs(100_000)),
        "lanes": many_lanes(url, jobs(10_000)),
        "unserved": unserved(url, jobs(20_000)),
    }


def backlog(url: str, queued: int) -> Facts:
    """Claim from a table with `queued` jobs and from one that is almost empty, in turn: the machine drifts."""
    with _table(url, "few", MIXED, 4 * CLAIMS) as few, _table(url, "many", MIXED, queued) as many:
        workers = Worker(few, "few", QUEUES), Worker(many, "many", QUEUES)
        for worker in workers:
            for _ in range(CLAIMS // 10):
                worker.take()
        took = [[worker.take() for worker in workers] for _ in range(CLAIMS)]
        empty_ms, full_ms = (median(one) * 1000 for one in zip(*took, strict=True))
        buffers = [_buffers(url, worker) for worker in workers]
    return {"queued": queued, "ms": [empty_ms, full_ms], "ratio": full_ms / empty_ms, "buffers": buffers}


def finished(url: str, sizes: list[int]) -> Facts:
    """Tell what a claim touches beside so many finished jobs."""
    buffers = []
    for size in sizes:
        with _table(url, "finished", FINISHED, size) as conn:
            _fill(conn, "finished", PLAIN, 2 * CLAIMS)
            worker = Worker(conn, "finished")
            worker.take()
            buffers.append(_buffers(url, worker))
    return {"finished": sizes, "buffers": buffers}


def behind_a_snapshot(url: str, jobs: int, blocks: int = 10) -> Facts:
    """Take `jobs` one by one while a snapshot from before is held elsewhere; compare the last of `blocks` with the first."""
    with _table(url, "snapshot", PLAIN, jobs + 1) as conn, psycopg.connect(url) as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select pg_current_snapshot()")
        worker = Worker(conn, "snapshot")
        worker.take()
        took = [[worker.take() for _ in range(jobs // blocks)] for _ in range(blocks)]
    medians = [median(block) * 1000 for block in took]
    means = [sum(block) / len(block) * 1000 for block in took]
    return {
        "jobs": jobs,
        "ms": medians,
        "ratio": medians[-1] / medians[0],
        "mean_ms": means,
        "mean_ratio": means[-1] / means[0],
        "looks": worker.looks,
    }


def many_lanes(url: str, pairs: int) -> Facts:
    """Tell what the look at the whole costs with so many pairs of queue and priority: one's own, and in queues of others."""
    with _table(url, "lanes", LANES, pairs) as conn:
        queues = {"own": QUEUES, "all": ("*",), "others": ("another",)}
        return {"pairs": pairs, **{name: _look(url, Worker(conn, "lanes", served)) for name, served in queues.items()}}


def unserved(url: str, jobs: int) -> Facts:
    """Tell what a claim touches where so many jobs of a kind without handler are at the head, and one that has one behind."""
    with _table(url, "unserved", PLAIN, jobs) as conn:
        worker = Worker(conn, "unserved", kind="other")
        conn.execute(in_schema("insert into fencepost.jobs (kind) select 'other' from generate_series(1, 100)", "unserved"))
        worker.look()
        from_start = _buffers(url, worker)
        assert worker.claim() is not None
        return {"jobs": jobs, "from_the_start": from_start, "behind_the_key": _buffers(url, worker)}


# ---- tables


@contextmanager
def _table(url: str, schema: str, fill: LiteralString, jobs: int) -> Iterator[Connection[Any]]:
    """Make a schema with so many jobs, and drop it in the end."""
    drop = sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(schema))
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(drop)
        migrate(conn, schema)
        try:
            _fill(conn, schema, fill, jobs)
            with _connection(url, schema) as of_worker:
                yield of_worker
        finally:
            conn.execute(drop)


def _connection(url: str, schema: str) -> QuickConnection[Any]:
    """Connect as a worker does for its claims."""
    conn = QuickConnection[Any].connect(url, autocommit=True)
    conn.plan_once(schema)
    return conn


def _fill(conn: Connection[Any], schema: str, fill: LiteralString, jobs: int) -> None:
    conn.execute(in_schema(fill, schema), {"kind": KIND, "queues": list(QUEUES), "jobs": jobs})
    conn.execute(in_schema("vacuum analyze fencepost.jobs", schema))


# ---- buffers


class Explained:
    """What auto_explain has told: how many buffers the statements since `clear` have touched, and their milliseconds."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.buffers, self.ms = 0, 0.0

    def hear(self, told: Diagnostic) -> None:
        """Take up a notice."""
        duration, found, plan = (told.message_primary or "").partition("plan:\n")
        if found:
            top = json.loads(plan)["Plan"]
            self.buffers += top["Shared Hit Blocks"] + top["Shared Read Blocks"]
            self.ms += float(duration.split()[1])


def _buffers(url: str, worker: Worker) -> int:
    """Return how many buffers a claim touches from behind the keys that the worker has reached."""
    explained = Explained()
    with _connection(url, worker.schema) as conn:
        conn.add_notice_handler(explained.hear)
        conn.execute(EXPLAIN)
        for _ in range(TRIES):
            # A claim that is rolled back must not move the keys.
            again = replace(worker, conn=conn)
            again.known = deepcopy(worker.known)
            explained.clear()
            with conn.transaction(force_rollback=True):
                assert again.claim() is not None
    return explained.buffers


def _look(url: str, worker: Worker) -> Facts:
    """Return what a worker's look at the whole touches."""
    explained = Explained()
    with _connection(url, worker.schema) as conn:
        conn.add_notice_handler(explained.hear)
        conn.execute(EXPLAIN)
        for _ in range(TRIES):
            explained.clear()
            lanes(conn, worker.schema, worker.queues)
    return {"buffers": explained.buffers, "ms": explained.ms}
