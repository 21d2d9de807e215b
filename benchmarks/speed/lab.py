"""What the parts share: a durable server, each peer's jobs in a database that is copied for each run, and workers.

Nothing is left behind: a run's processes end and its database goes with the block that made it.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from typing import Any

import psycopg
from peers import peer
from peers.peer import Trouble
from peers.processes import send, start, tree
from psycopg.conninfo import make_conninfo

from speed.peer import Peer, all_peers
from support.servers import Server

SERVER = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "min_wal_size": "2GB",
    "checkpoint_timeout": "1h",
    "max_connections": "600",
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "none",
    "log_lock_waits": "off",
}
"""Durable; and with room for what a run writes, so that no checkpoint falls into one run and not into another."""

PATIENCE = 120.0
"""Seconds: for a worker that does nothing at all."""

Facts = dict[str, Any]


@dataclass(frozen=True)
class Place(peer.Place):
    """Where one run of a peer happens."""

    peer: Peer

    @property
    def login(self) -> str:
        """The database's address for the peer's worker."""
        return make_conninfo(self.database, user=self.peer.login) if self.peer.login else self.database

    def ask(self, query: str) -> Any:
        """Ask the database for one value, as its superuser."""
        with psycopg.connect(self.database, autocommit=True) as conn:
            row = conn.execute(query.encode()).fetchone()
        return row[0] if row else None

    @contextmanager
    def working(self, n: int, **env: str) -> Iterator[Popen[bytes]]:
        """Have a worker that runs `n` jobs at a time, and kill all of it in the end."""
        command = self.peer.command(self.peer.worker, self.login, n=n, programs=self.server.installation.programs)
        environment = {**self.peer.environment(self.login, self.log), "AT_A_TIME": str(n), **env}
        main = start(command, self.folder, environment, self.folder / "output")
        try:
            yield main
        finally:
            for process in tree(main):
                send(process, signal.SIGKILL)
            main.wait()

    def stamps(self) -> dict[int, int]:
        """Return when the jobs that note it have started: nanoseconds of the machine's monotonic clock, by their numbers."""
        lines = self.log.read_text(encoding="ascii").splitlines() if self.log.exists() else []
        return {int(number): int(at) for number, at in (line.split() for line in lines)}

    def wait(self, condition: Callable[[], object], what: str, every: float = 0.05) -> None:
        """Wait until it holds."""
        until = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > until:
                raise Trouble(f"{what} has not come about in {PATIENCE:g} s: {self._said()}")
            time.sleep(every)

    def _said(self) -> str:
        output = self.folder / "output"
        lines = output.read_text(encoding="utf-8", errors="replace").strip().splitlines() if output.exists() else []
        return lines[-1][:200] if lines else "it said nothing"


@dataclass
class Lab:
    """A server, who is measured, and how much of it. `missing` are those that can't be installed here, with the reason."""

    server: Server
    peers: list[Peer]
    missing: dict[str, str] = field(default_factory=dict)
    jobs: int = 20_000
    rounds: int = 3
    so_far: Callable[[Facts], None] = lambda _: None
    """Is told what a long part has found by then."""
    _filled: set[str] = field(default_factory=set)

    def peer(self, slug: str) -> Peer:
        """Return one for a part that is about that alone, whoever else is measured."""
        return next(peer for peer in all_peers() if peer.slug == slug)

    def version(self) -> str:
        """Return PostgreSQL's."""
        with psycopg.connect(self.server.url()) as conn:
            return conn.info.parameter_status("server_version") or ""

    @contextmanager
    def place(self, peer: Peer, jobs: int = 0, kind: str = "noop") -> Iterator[Place]:
        """Have a database with so many jobs in it. Each run gets a copy of the same, vacuumed, and after a checkpoint."""
        name = f"run_{peer.slug}"
        folder = Path(tempfile.mkdtemp(prefix=f"speed-{peer.slug}-"))
        try:
            template = self._template(peer, jobs, kind)
            with psycopg.connect(self.server.url(), autocommit=True) as conn:
                conn.execute(f'drop database if exists "{name}" with (force)')
                conn.execute(f'create database "{name}" template "{template}"')
                conn.execute("checkpoint")
            yield Place(peer, self.server, self.server.url(name), folder)
            with psycopg.connect(self.server.url(), autocommit=True) as conn:
                conn.execute(f'drop database "{name}" with (force)')
        finally:
            shutil.rmtree(folder)

    def _template(self, peer: Peer, jobs: int, kind: str) -> str:
        template = f"full_{peer.slug}_{kind}_{jobs}"
        if template in self._filled:
            return template
        with tempfile.TemporaryDirectory(prefix=f"speed-{peer.slug}-") as folder:
            place = Place.new(peer, self.server, Path(folder))
            if jobs:
                place.run([*peer.program, "enqueue"], str(jobs), kind)
            with psycopg.connect(place.database, autocommit=True) as conn:
                conn.execute("vacuum (analyze)")
        with psycopg.connect(self.server.url(), autocommit=True) as conn:
            conn.execute(f'alter database "peer_{peer.slug}" rename to "{template}"')
        self._filled.add(template)
        return template
