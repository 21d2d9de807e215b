"""PgBouncer in transaction mode between the workers and the server."""

from __future__ import annotations

import re
import subprocess
from contextlib import closing
from typing import Any

import psycopg
from psycopg import Connection

from article.designs.pooled import SET, count
from article.lab import PATIENCE, Facts, Lab
from article.missing import Missing
from article.page import Section, number, one_line
from fencepost import enqueue
from support.databases import Database
from support.poolers import Pooler, program
from support.waiting import wait_until

TITLE = "PgBouncer in transaction mode"

REPEATED = 12


def measure(lab: Lab) -> Facts:
    """Have two clients share one connection to the server."""
    found = program()
    if found is None:
        raise Missing("no pgbouncer")
    facts: Facts = {
        "version": subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    }
    with lab.database() as database, closing(Pooler(database, default_pool_size=1)) as pooler:
        url = pooler.url()
        for name, local in {"session setting": False, "local setting": True}.items():
            with psycopg.connect(url) as one, psycopg.connect(url) as other:
                with one.transaction():
                    one.execute(SET, ["1", local])
                with other.transaction():
                    facts[name] = count(other)
            _clear(url)
        facts["prepared"] = _prepared(url, 5)
        facts["unprepared"] = _prepared(url, None)
        facts["Fencepost"] = _fencepost(lab, database, url)
    return facts


def _clear(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("discard all")


def _prepared(url: str, threshold: int | None) -> Facts:
    """Run one statement again and again, in two clients by turns; return how far that goes."""
    with psycopg.connect(url, prepare_threshold=threshold) as one, psycopg.connect(url, prepare_threshold=threshold) as other:
        for done in range(REPEATED):
            try:
                for conn in (one, other):
                    _count_in_a_transaction(conn)
            except psycopg.Error as error:
                return {"rounds": done, "error": f"{error.sqlstate}: {str(error).splitlines()[0]}"}
    return {"rounds": REPEATED, "error": ""}


def _count_in_a_transaction(conn: Connection[Any]) -> int:
    with conn.transaction():
        return count(conn)


def _fencepost(lab: Lab, database: Database, url: str) -> Facts:
    """Ask `check`, and if it finds nothing, run the tenants' jobs through the pooler."""
    check = lab.fencepost("check", url=url, pooler="transaction")
    lines = [line.strip() for line in (check.stdout + check.stderr).splitlines()]
    said = [line for line in lines if line.startswith(("refused", "waits", "cure"))] or list(filter(None, lines))
    facts: Facts = {
        "exit": check.returncode,
        "said": one_line(re.sub(r"port \d+", "port 6432", "; ".join(said).replace(database.worker, "worker"))),
    }
    if check.returncode == 0:
        jobs = {tenant: enqueue(database.owner, "count", tenant=tenant) for tenant in range(1, 21)}
        with lab.supervisor(url, concurrency=2, pooler="transaction"):
            done = "select count(*) from fencepost.jobs where status in ('done', 'dead')"
            wait_until(lambda: database.value(done) == len(jobs), within=PATIENCE)
        right = (
            "select count(*) from fencepost.jobs where status = 'done' and result = to_jsonb(greatest(%s / tenant_id::int, 1))"
        )
        facts |= {"jobs": len(jobs), "right": database.value(right, [lab.first_tenant])}
    return facts


def tell(facts: Facts) -> Section:
    """Tell of it."""
    prepared, unprepared, ours = facts["prepared"], facts["unprepared"], facts["Fencepost"]
    breaks = f"break in round {prepared['rounds'] + 1} of a repeated statement ({prepared['error']})"
    if "right" in ours:
        told = (
            f"with FENCEPOST_POOLER=transaction had {ours['right']} of {ours['jobs']} tenants' jobs count their own invoices."
        )
    else:
        told = f"with FENCEPOST_POOLER=transaction refuses it: “{ours['said']}”."
    return Section(
        article="not measured.",
        here=f"with PgBouncer {facts['version']} one client's session setting shows the other client, who has set nothing, "
        f"{number(facts['session setting'])} invoices of tenant 1; a local setting shows {number(facts['local setting'])}. "
        f"Prepared statements {breaks if prepared['error'] else 'do not break'}; without them "
        f"{unprepared['rounds']} of {REPEATED} rounds go through.",
        fencepost=told,
        head=["two clients, one connection to the server", "what follows"],
        rows=[
            ["session setting", f"{number(facts['session setting'])} invoices seen by the other"],
            ["local setting", f"{number(facts['local setting'])} invoices seen by the other"],
            ["psycopg's default of prepared statements", prepared["error"] or f"{prepared['rounds']} rounds"],
            ["prepare_threshold=None", unprepared["error"] or f"{unprepared['rounds']} rounds"],
            ["Fencepost", f"{ours['right']} of {ours['jobs']} jobs right" if "right" in ours else ours["said"]],
        ],
    )
