"""The independent history: what the run's processes have written down themselves, and what their transactions have left.

Nothing here is taken from the product's word but the two tables that are to be proven right. All processes are on one machine:
CLOCK_BOOTTIME orders what they did, and the server's commit timestamps order what was committed.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import class_row


@dataclass(frozen=True)
class Line:
    """One line of the file. Of a run: start, act, conflict, refused, stray, end. Of the nemesis: what it did to `pids`.

    A conflict is told by a run that began while `other`, the process of another run of the same job, was still there.
    """

    what: str
    at: float = 0.0
    pid: int = 0
    supervisor: int = 0
    job: int = 0
    fence: int = 0
    claim: str = ""
    attempt: int = 0
    tenant: str = ""
    other: int = 0
    note: str = ""
    pids: tuple[int, ...] = ()

    def __str__(self) -> str:
        told = {name: value for name, value in asdict(self).items() if value and name not in ("at", "what", "job", "claim")}
        return f"{self.at:12.3f}  {self.what:<10} {' '.join(f'{name}={value}' for name, value in told.items())}"


@dataclass(frozen=True)
class Effect:
    """A committed row of a run. `committed` is in microseconds, by the server's clock."""

    job: int
    fence: int
    step: int
    tenant: str
    token: str
    transaction: str
    committed: int


@dataclass(frozen=True)
class Change:
    """A committed change of a job's state."""

    job: int
    fence: int
    status: str
    transaction: str
    committed: int


@dataclass(frozen=True)
class Row:
    """A job as the product left it, and the kind and tenant that it was enqueued with."""

    id: int
    kind: str
    tenant: str
    status: str
    max_attempts: int | None


@dataclass(frozen=True)
class Outcome:
    """A run as the product has put it on record."""

    job: int
    fence: int
    outcome: str


@dataclass(frozen=True)
class History:
    """All that the checker is given. `enqueued` are the jobs whose enqueue was answered; `left` is what was left behind."""

    lines: tuple[Line, ...] = ()
    effects: tuple[Effect, ...] = ()
    changes: tuple[Change, ...] = ()
    jobs: tuple[Row, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    enqueued: tuple[tuple[int, str], ...] = ()
    left: tuple[str, ...] = field(default=())


COMMITTED = "xmin::text as transaction, (extract(epoch from pg_xact_commit_timestamp(xmin)) * 1000000)::bigint as committed"
EFFECTS = f"select job, fence, step, tenant, token, {COMMITTED} from torture.effects order by id"
CHANGES = f"select job, fence, status, {COMMITTED} from torture.changes order by id"
JOBS = "select id, kind, tenant_id as tenant, status, max_attempts from fencepost.jobs order by id"
OUTCOMES = "select job_id as job, fence, outcome from fencepost.job_runs order by job_id, fence"


def boottime() -> float:
    """Return the clock that all processes of this machine share, and that goes on while they are frozen."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def write(file: Path | str, what: str, **facts: Any) -> None:
    """Append a line, in one write: whole, whoever else writes and whatever happens next."""
    line = {"what": what, "at": boottime(), **facts}
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        os.write(descriptor, json.dumps(line).encode() + b"\n")
    finally:
        os.close(descriptor)


def read_lines(file: Path) -> tuple[Line, ...]:
    """Return the lines in the order of the clock."""
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return tuple(sorted((Line(**{**line, "pids": tuple(line.get("pids", ()))}) for line in lines), key=lambda line: line.at))


def read(conn: psycopg.Connection[Any], file: Path, enqueued: dict[int, str], left: list[str]) -> History:
    """Return the whole history, once all is quiet."""
    return History(
        lines=read_lines(file),
        effects=tuple(conn.cursor(row_factory=class_row(Effect)).execute(EFFECTS)),
        changes=tuple(conn.cursor(row_factory=class_row(Change)).execute(CHANGES)),
        jobs=tuple(conn.cursor(row_factory=class_row(Row)).execute(JOBS)),
        outcomes=tuple(conn.cursor(row_factory=class_row(Outcome)).execute(OUTCOMES)),
        enqueued=tuple(enqueued.items()),
        left=tuple(left),
    )
