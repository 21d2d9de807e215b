"""What the parts share: a server, databases, naive workers, supervisors, and how large everything is.

Nothing is left behind: a part's processes end and its databases go with the blocks that made them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg import sql

from article.designs import work
from fencepost import enqueue
from support.databases import Database
from support.processes import SETTINGS, Supervisor
from support.servers import Installation, Server
from support.waiting import wait_until

HERE = Path(__file__).parent
TABLES = HERE / "designs" / "tables.sql"
INVOICES = """
insert into invoices
    select tenant, number from generate_series(1, 100) tenant, generate_series(1, greatest(%s / tenant, 1)) number"""
PATIENCE = 300.0
"""Seconds: for what must come about on a busy machine, too."""

Facts = dict[str, Any]


@dataclass
class Lab:
    """A server and a scale: 1 is the article's, 0.02 is for trying."""

    server: Server
    installation: tuple[Installation, Path]
    scale: float = 1.0
    command: tuple[str, ...] | None = ("-m", "fencepost", "run")
    """How supervisors are started; None has them forked, which is quicker."""

    # ---- how much

    def count(self, full: int, least: int = 1) -> int:
        """Return a number of jobs or rows at this scale."""
        return max(least, round(full * self.scale))

    def seconds(self, full: float, least: float) -> float:
        """Return a time at this scale."""
        return max(least, full * self.scale)

    @property
    def first_tenant(self) -> int:
        """How many invoices tenant 1 has: 20,000, and tenant n that divided by n."""
        return self.count(20_000, 200)

    # ---- where

    @contextmanager
    def database(self, server: Server | None = None) -> Iterator[Database]:
        """Have a database with the article's tables and Fencepost's, and a plain login that may do what it needs."""
        made = Database.create(server or self.server, self._template(server or self.server))
        try:
            made.grant()
            role = sql.Identifier(made.worker)
            made.owner.execute(
                sql.SQL("grant select, insert, update, delete on all tables in schema public to {}").format(role)
            )
            yield made
        finally:
            made.drop()

    def _template(self, server: Server) -> str:
        """Return the name of a server's database to copy, which is made for the first."""
        template = Database(server, f"article_{self.first_tenant}")
        with Database(server, "postgres").conn() as conn:
            if conn.execute("select from pg_database where datname = %s", [template.name]).rowcount:
                return template.name
            conn.execute(sql.SQL("create database {}").format(sql.Identifier(template.name)))
        template.migrate()
        template.owner.execute(TABLES.read_text(encoding="utf-8"))
        # The superuser's, past the policy.
        template.owner.execute(INVOICES, [self.first_tenant])
        template.owner.execute("analyze")
        template.close()
        return template.name

    @contextmanager
    def own_server(self, **settings: str) -> Iterator[Server]:
        """Have a server with settings of its own."""
        installation, data = self.installation
        server = Server.new(installation, data, **settings)
        try:
            server.start()
            yield server
        finally:
            server.remove()

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """Have a folder."""
        with tempfile.TemporaryDirectory(prefix="article-") as name:
            yield Path(name)

    # ---- who

    @contextmanager
    def workers(
        self,
        url: str,
        design: str,
        how_long: str = "stay",
        *,
        lease: float = 60,
        count: int = 1,
        inside: Sequence[str] = (),
    ) -> Iterator[list[subprocess.Popen[bytes]]]:
        """Have workers of a naive design, as processes, which are killed at the end if they still run."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        processes = [
            subprocess.Popen(
                [*inside, sys.executable, "-m", "article.designs.worker", design, f"{lease:g}", how_long],
                env={**kept, "PYTHONPATH": str(HERE.parent), "DATABASE_URL": url},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for _ in range(count)
        ]
        try:
            yield processes
        finally:
            for process in processes:
                process.kill()
                process.wait()

    @contextmanager
    def supervisor(self, url: str, *, inside: Sequence[str] = (), **settings: object) -> Iterator[Supervisor]:
        """Have a supervisor: `fencepost run`, with our handlers."""
        with ExitStack() as stack:
            folder = stack.enter_context(self.folder())
            environment = {"PYTHONPATH": str(HERE.parent)}
            known: dict[str, Any] = {"concurrency": 1, "log_level": "info", **settings}
            one = Supervisor(
                url,
                folder,
                "article.handlers",
                self.command,
                tuple(inside),
                environment,
                **known,
            )
            try:
                yield one
            finally:
                one.stop()

    def fencepost(self, *words: str, url: str, **settings: object) -> subprocess.CompletedProcess[str]:
        """Run another of Fencepost's commands to its end."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        known = {**SETTINGS, "handlers": "article.handlers", **settings}
        ours = {f"FENCEPOST_{name.upper()}": str(value) for name, value in known.items()}
        return subprocess.run(
            [sys.executable, "-m", "fencepost", *words],
            env={**kept, **ours, "PYTHONPATH": str(HERE.parent), "DATABASE_URL": url},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )


# ---- what is asked of a database


def add(database: Database, *kinds: str) -> list[int]:
    """Put jobs into the naive queue."""
    return [database.value("insert into jobs (kind) values (%s) returning id", [kind]) for kind in kinds]


def add_work(database: Database, *kinds: str, **options: Any) -> list[int]:
    """Enqueue the same in Fencepost."""
    return [enqueue(database.owner, "work", {"kind": kind}, **options) for kind in kinds]


def notes(database: Database, job: int, what: str = "start") -> list[float]:
    """Return when the runs of a job started, or ended: what has really run, whatever was rolled back."""
    query = "select extract(epoch from at)::float8 as at from notes where job_id = %s and what = %s order by id"
    return [row.at for row in database.execute(query, [job, what])]


def seconds_of_work(database: Database, job: int) -> float:
    """Return how long the runs of a job that came to their end have worked."""
    query = """
        select coalesce(sum(extract(epoch from over.at - begun.at)), 0)::float8
        from notes begun join notes over using (job_id, attempt)
        where job_id = %s and begun.what = 'start' and over.what = 'end'"""
    return float(database.value(query, [job]))


def state(database: Database, job: int, table: str = "jobs") -> tuple[str, int]:
    """Return a job's status and attempts, as its table has them."""
    row = database.execute(f"select status, attempts from {table} where id = %s", [job])[0]
    return row.status, row.attempts


def wait_for(database: Database, job: int, table: str = "fencepost.jobs", within: float = PATIENCE) -> str:
    """Wait until a job is at rest, and return its status."""
    at_rest = ("done", "dead", "cancelled")
    wait_until(lambda: state(database, job, table)[0] in at_rest, within=within, what=f"the end of job {job}")
    return state(database, job, table)[0]


def all_there(database: Database, workers: int) -> bool:
    """Whether that many naive workers have connected."""
    query = "select count(*) from pg_stat_activity where usename = %s"
    return bool(database.value(query, [database.worker]) >= workers)


def in_process(database: Database, conn: Any) -> Any:
    """Return what works on a job in this process, in `conn`'s transaction."""
    return lambda taken: work.act(conn, database.worker_url, taken)


def since(began: float) -> float:
    """Return seconds since then."""
    return time.monotonic() - began
