"""A machine that vanishes from the network in the middle of a job."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager

from article.lab import PATIENCE, Facts, Lab, add, add_work, notes, since
from article.missing import Missing
from article.page import Section
from article.page import seconds as secs
from support.databases import Database
from support.networks import Machine
from support.processes import is_running
from support.waiting import wait_until

TITLE = "A machine that vanishes"

LEASE, HEARTBEAT, WATCHED = 6.0, 1.5, 20.0
DESIGNS = {"one transaction": "one_transaction", "fence and heartbeat": "beating"}
KEEPALIVES = "select current_setting('tcp_keepalives_idle')::int"


def measure(lab: Lab) -> Facts:
    """Pull the cable of a machine that works on a job, while another looks for work, and watch."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise Missing("network namespaces need root, and iproute2")
    watched = lab.seconds(WATCHED, 4)
    lease = lab.seconds(LEASE, 1)
    facts: Facts = {"watched": watched, "lease": lease, "rows": {}}
    with lab.own_server(listen_addresses="*") as server:
        for name, design in DESIGNS.items():
            with lab.database(server) as database, _machine() as machine:
                facts["rows"][name] = _naive(lab, database, machine, design, lease, watched)
                facts["keepalives_idle"] = database.value(KEEPALIVES)
        with lab.database(server) as database, _machine() as machine:
            facts["rows"]["Fencepost"] = _fencepost(lab, database, machine)
    facts["our lease"] = LEASE
    return facts


@contextmanager
def _machine() -> Iterator[Machine]:
    made = Machine()
    try:
        yield made
    finally:
        made.remove()


def _naive(lab: Lab, database: Database, machine: Machine, design: str, lease: float, watched: float) -> Facts:
    (job,) = add(database, "sleeps:600")
    url = _let_in(database, machine)
    with lab.workers(url, design, lease=lease, inside=machine.inside) as (away,):
        wait_until(lambda: notes(database, job), within=PATIENCE, what="the run over there")
        with lab.workers(database.worker_url, design, lease=lease):
            connected = "select count(*) from pg_stat_activity where usename = %s and client_addr = '127.0.0.1'"
            wait_until(lambda: database.value(connected, [database.worker]), within=PATIENCE, what="the worker here")
            machine.cut("cable")
            began, taken_over, stopped = time.monotonic(), None, None
            while since(began) < watched:
                time.sleep(0.05)
                if taken_over is None and len(notes(database, job)) > 1:
                    taken_over = since(began)
                if stopped is None and away.poll() is not None:
                    stopped = since(began)
            return {"taken over": taken_over, "stopped": stopped, "sessions": _sessions(database, machine)}


def _let_in(database: Database, machine: Machine) -> str:
    """Return the address of the database from there, once the server has read that it may be used."""
    before = database.value("select clock_timestamp()")
    url = machine.url(database)

    def read() -> bool:
        with database.conn() as conn:
            return conn.execute("select pg_conf_load_time() > %s", [before]).fetchone() == (True,)

    wait_until(read, within=PATIENCE, what="the server's new rules")
    return url


def _fencepost(lab: Lab, database: Database, machine: Machine) -> Facts:
    settings = {"lease": f"{LEASE:g}s", "heartbeat": f"{HEARTBEAT:g}s", "sweep": "500ms"}
    (job,) = add_work(database, "sleeps:600")
    with lab.supervisor(_let_in(database, machine), inside=machine.inside, **settings) as away:
        wait_until(lambda: notes(database, job), within=PATIENCE)
        worker = away.wait_for_worker_of(job)
        with lab.supervisor(database.worker_url, **settings, drain_timeout="1s") as elsewhere:
            elsewhere.wait_for_workers(1)
            machine.cut("cable")
            began = time.monotonic()
            wait_until(lambda: not is_running(worker), within=PATIENCE, what="the end of the run that was cut off")
            stopped = since(began)
            wait_until(lambda: len(notes(database, job)) > 1, within=PATIENCE, what="the next run")
            taken_over = since(began)
            found = {"taken over": taken_over, "stopped": stopped, "sessions": _sessions(database, machine)}
            machine.heal("cable")
    return found


def _sessions(database: Database, machine: Machine) -> int:
    """Return how many transactions the server still keeps open for the machine."""
    query = "select count(*) from pg_stat_activity where client_addr = %s and xact_start is not null"
    return int(database.value(query, [machine.address]))


def tell(facts: Facts) -> Section:
    """Tell of it."""
    rows = facts["rows"]
    naive, beat, ours = (rows[name] for name in (*DESIGNS, "Fencepost"))
    apart = ours["taken over"] - ours["stopped"]
    return Section(
        article="not measured; tcp_keepalives_idle is the system's.",
        here=f"a job in one transaction is {_taken(naive, facts)}: the server keeps the row locked until the system gives the "
        f"connection up, of which it thinks after {facts['keepalives_idle']} s for the first time. With a lease of "
        f"{secs(facts['lease'])} and a heartbeat it is {_taken(beat, facts)}"
        + ("; but nothing stops the run on the other side of the cable, which goes on." if beat["stopped"] is None else "."),
        fencepost=f"ends the run that was cut off after {secs(ours['stopped'])} (the lease is "
        f"{secs(facts['our lease'])}), and another machine runs the job after {secs(ours['taken over'])}: "
        + (f"the two are {secs(apart)} apart." if apart > 0 else f"the two overlap for {secs(-apart)}."),
        head=["", "taken over", "the cut-off run", "its transactions left open"],
        rows=[
            [
                name,
                _taken(row, facts),
                "goes on" if row["stopped"] is None else f"ended after {secs(row['stopped'])}",
                str(row["sessions"]),
            ]
            for name, row in rows.items()
        ],
    )


def _taken(row: Facts, facts: Facts) -> str:
    when = row["taken over"]
    return f"taken over after {secs(when)}" if when is not None else f"not taken over in {secs(facts['watched'])}"
