"""A minute without work, with sixteen jobs at a time allowed: statements, and processor time of all of a worker's processes.

All idle at the same time: what does nothing is in nobody's way.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from subprocess import Popen

import psutil
import psycopg
from peers.processes import tree

from speed.lab import Facts, Lab
from speed.page import number, table
from speed.peer import BARE, all_peers

AT_A_TIME = 16
SETTLE, WATCHED = 20.0, 60.0
"""Seconds from the start of a worker until it is idle, and those that are watched."""

STATEMENTS = """
select d.datname, coalesce(sum(s.calls), 0)::int
from pg_database d left join pg_stat_statements s on s.dbid = d.oid
group by d.datname"""


def measure(lab: Lab) -> Facts:
    """Watch all of them for a minute."""
    peers = [peer for peer in lab.peers if peer.manner != BARE]
    with ExitStack() as stack:
        conn = stack.enter_context(psycopg.connect(lab.server.url(), autocommit=True))
        conn.execute("create extension if not exists pg_stat_statements")
        mains: dict[str, Popen[bytes]] = {}
        for peer in peers:
            place = stack.enter_context(lab.place(peer))
            conn.execute(f"alter database run_{peer.slug} set pg_stat_statements.track = 'top'")
            mains[peer.slug] = stack.enter_context(place.working(AT_A_TIME))
        time.sleep(SETTLE)
        conn.execute("select pg_stat_statements_reset()")
        before = {slug: processor_time(main) for slug, main in mains.items()}
        time.sleep(WATCHED)
        after = {slug: processor_time(main) for slug, main in mains.items()}
        statements: dict[str, int] = dict(conn.execute(STATEMENTS).fetchall())
        alive = [slug for slug, main in mains.items() if main.poll() is None]
    return {"rows": {slug: {"statements": statements[f"run_{slug}"], "cpu": after[slug] - before[slug]} for slug in alive}}


def processor_time(main: Popen[bytes]) -> float:
    """Return the seconds that all processes of a worker have used so far, with those that are gone."""
    used = 0.0
    for process in tree(main):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        used += times.user + times.system + times.children_user + times.children_system
    return used


def tell(facts: Facts) -> str:
    """Tell of it: the quietest first."""
    names = {peer.slug: peer.name for peer in all_peers()}
    quietest = sorted(facts["rows"].items(), key=lambda row: row[1]["cpu"])
    rows = [[names[slug], number(row["statements"]), f"{row['cpu']:.2f} s"] for slug, row in quietest]
    return table(["", "statements in a minute", "processor time in a minute"], rows)
