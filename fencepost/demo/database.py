"""What the demo asks of its database: to make the sample, to enqueue, and to look on."""

from __future__ import annotations

from typing import Any

from psycopg import Connection
from psycopg.rows import class_row, dict_row, scalar_row

from fencepost.demo.facts import BadJob, Count
from fencepost.demo.server import SUPERUSER, Server
from fencepost.demo.sql import statement
from fencepost.jobs.migrate import migrate

OWNER = "owner"
WORKER = "worker"
SCHEMA = "fencepost"


def create(server: Server) -> None:
    """Make the roles, Fencepost's tables and the sample; give the worker's login its few rights."""
    with server.connect(SUPERUSER) as conn:
        conn.execute(statement("roles"))
    with server.connect(OWNER) as conn:
        migrate(conn, SCHEMA)
        conn.execute(statement("grants"))
        conn.execute(statement("sample"))


def enqueue_late(server: Server) -> int:
    """Enqueue the late writer, and return its id."""
    with server.connect(WORKER) as conn:
        return int(conn.cursor(row_factory=scalar_row).execute(statement("enqueue_late")).fetchall()[0])


def enqueue(server: Server) -> int:
    """Enqueue all others, and return how many they are."""
    with server.connect(WORKER) as conn:
        return len(conn.execute(statement("enqueue")).fetchall())


class Onlooker:
    """A session that only looks: a superuser's, past every policy, so that nothing is hidden from it."""

    def __init__(self, server: Server) -> None:
        self._conn: Connection[Any] = server.connect(SUPERUSER)

    def close(self) -> None:
        """Close the session."""
        self._conn.close()

    def progress(self) -> dict[str, int]:
        """Return how many tenants are `counted`, and how many jobs are `unfinished`."""
        return self._conn.cursor(row_factory=dict_row).execute(statement("progress")).fetchall()[0]

    def bad_jobs(self) -> dict[str, BadJob]:
        """Return where the bad jobs stand, by their kinds."""
        jobs = self._conn.cursor(row_factory=class_row(BadJob)).execute(statement("bad_jobs")).fetchall()
        return {job.kind: job for job in jobs}

    def counts(self) -> list[Count]:
        """Return what became of each tenant's job."""
        return self._conn.cursor(row_factory=class_row(Count)).execute(statement("counts")).fetchall()

    def reports(self) -> list[int]:
        """Return by which attempts the late writer's row was written."""
        return self._conn.cursor(row_factory=scalar_row).execute(statement("reports")).fetchall()
