"""Fenced, with a heartbeat: a thread with a connection of its own prolongs the lease, only for the claimed attempt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import Connection

from article.designs import fenced
from article.designs.work import Taken

BEAT = """
update jobs set locked_until = clock_timestamp() + %s * interval '1 second'
where id = %s and attempts = %s and status = 'running'"""


def take(conn: Connection[Any], act: Callable[[Taken], None], lease: float) -> int | None:
    """Take one job, and keep it while it is worked on."""

    def kept(taken: Taken) -> None:
        over = threading.Event()

        def beat() -> None:
            with psycopg.connect(conn.info.dsn, autocommit=True) as own:
                while not over.wait(lease / 4):
                    own.execute(BEAT, [lease, taken.id, taken.attempt])

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            act(taken)
        finally:
            over.set()
            thread.join()

    return fenced.take(conn, kept, lease)
