"""What the jobs do: the same in every naive design and, by handlers.py, in Fencepost."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection


@dataclass(frozen=True)
class Taken:
    """A job as a design has taken it; where nothing is counted, the attempt is always the first."""

    id: int
    kind: str
    attempt: int


class Lost(Exception):
    """The finish touched no row: the job was another's by then."""


def note(url: str, job: int, attempt: int, what: str) -> None:
    """Note what a run does, in a session of its own, so that no rollback takes it back."""
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("insert into notes (job_id, attempt, what) values (%s, %s, %s)", [job, attempt, what])


def act(conn: Connection[Any], url: str, taken: Taken) -> None:
    """Work on a job: `nothing` at all, `ok`, `raises`, `exits`, or `sleeps:3`."""
    kind, _, seconds = taken.kind.partition(":")
    if kind == "nothing":
        return
    note(url, taken.id, taken.attempt, "start")
    match kind:
        case "raises":
            conn.execute("select 1/0")
        case "exits":
            os._exit(1)
        case "sleeps":
            time.sleep(float(seconds))
    note(url, taken.id, taken.attempt, "end")
