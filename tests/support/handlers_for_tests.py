"""Handlers for the tests of processes: one that is well, and one for each accident.

Each run leaves its start mark first, by a connection of its own: outside the job's transaction, so marks count real
runs.
To add another: decorate it with `@marked(kind)`.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

import psycopg

from fencepost import Cancel, GiveUp, Job, Retry, Snooze, handler

Function = Callable[..., Any]


def mark(job: Job, note: str = "start") -> None:
    """Write down that this run has come this far."""
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as conn:
        conn.execute(
            "insert into test.marks (job, attempt, pid, note) values (%s, %s, %s, %s)",
            (job.id, job.attempt, os.getpid(), note),
        )


def insert_row(conn: psycopg.Connection[Any], job: Job, note: str = "") -> None:
    """Write a business row."""
    conn.execute("insert into test.rows (job, attempt, note) values (%s, %s, %s)", (job.id, job.attempt, note))


def marked(kind: str, **options: Any) -> Callable[[Function], Function]:
    """Register a handler whose runs leave a start mark."""

    def register(function: Function) -> Function:
        @wraps(function)
        def run(job: Job, **payload: Any) -> Any:
            mark(job)
            return function(job, **payload)

        return handler(kind, **options)(run)

    return register


# ---- well


@marked("ok")
def ok(job: Job) -> dict[str, int]:
    """Return at once."""
    return {"attempt": job.attempt}


@handler("quick")
def quick(job: Job) -> None:
    """Return at once, without a mark: for jobs by the thousand."""


@marked("slow")
def slow(job: Job, *, seconds: float = 2.0) -> None:
    """Sleep, then mark the end."""
    time.sleep(seconds)
    mark(job, "end")


@marked("slow_until_attempt")
def slow_until_attempt(job: Job, *, attempt: int, seconds: float = 30.0) -> None:
    """Sleep in attempts before the given one."""
    if job.attempt < attempt:
        time.sleep(seconds)


@marked("writes")
def writes(job: Job, *, note: str = "", seconds: float = 0.0) -> None:
    """Sleep, then write a business row in a transaction."""
    time.sleep(seconds)
    with job.transaction() as conn:
        insert_row(conn, job, note)


@marked("writes_slowly")
def writes_slowly(job: Job, *, seconds: float) -> None:
    """Write two business rows in one transaction, and sleep between them."""
    with job.transaction() as conn:
        insert_row(conn, job, "first")
        mark(job, "between")
        time.sleep(seconds)
        insert_row(conn, job, "second")


@marked("writes_once", transaction=True)
def writes_once(job: Job, *, seconds: float = 0.0) -> None:
    """Write a business row in the one transaction that also finishes the job."""
    insert_row(job.conn, job)
    time.sleep(seconds)


# ---- ends of its own choice


@marked("fails")
def fails(job: Job, *, text: str = "on purpose") -> None:
    """Raise."""
    raise ValueError(text)


@marked("fails_until_attempt")
def fails_until_attempt(job: Job, *, attempt: int) -> None:
    """Raise in attempts before the given one."""
    if job.attempt < attempt:
        raise ValueError(f"attempt {job.attempt} fails")


@marked("retries")
def retries(job: Job, *, after: float) -> None:
    """Ask for another attempt."""
    raise Retry("later", after=after)


@marked("snoozes")
def snoozes(job: Job, *, after: float) -> None:
    """Ask to be put back."""
    raise Snooze(after)


@marked("gives_up")
def gives_up(job: Job, *, reason: str = "hopeless") -> None:
    """End as dead."""
    raise GiveUp(reason)


@marked("cancels")
def cancels(job: Job, *, reason: str = "not needed") -> None:
    """End as cancelled."""
    raise Cancel(reason)


# ---- deaths


@marked("kills_itself")
def kills_itself(job: Job, *, signum: int = signal.SIGKILL, after: float = 0.0) -> None:
    """Send a signal to its own process."""
    time.sleep(after)
    os.kill(os.getpid(), signum)
    time.sleep(60)


@marked("exits")
def exits(job: Job, *, code: int) -> None:
    """Leave the process, past everything that Python would still do."""
    os._exit(code)


@marked("segfault")
def segfault(job: Job) -> None:
    """Read where nothing is."""
    ctypes.string_at(0)


@marked("aborts")
def aborts(job: Job) -> None:
    """Abort."""
    os.abort()


# ---- hangs


@marked("hangs_in_c")
def hangs_in_c(job: Job) -> None:
    """Hold the interpreter's lock in C for hours: no signal handler of Python's gets a turn."""
    sum(itertools.repeat(1, 10**12))


@marked("swallows_everything")
def swallows_everything(job: Job) -> None:
    """Go on whatever is raised here."""
    while True:
        try:
            time.sleep(1)
        except BaseException:  # noqa: BLE001
            pass


@marked("stops_itself")
def stops_itself(job: Job) -> None:
    """Freeze its own process."""
    os.kill(os.getpid(), signal.SIGSTOP)


@marked("hangs_on_the_server")
def hangs_on_the_server(job: Job, *, seconds: float = 120.0) -> None:
    """Sleep in a statement, on the job's own connection."""
    with job.transaction() as conn:
        conn.execute("select pg_sleep(%s)", (seconds,))


@marked("hangs_with_a_program")
def hangs_with_a_program(job: Job, *, new_session: bool = False) -> None:
    """Start a program, mark its pid as a note, then hold the interpreter's lock in C."""
    program = subprocess.Popen(["sleep", "600"], start_new_session=new_session)
    mark(job, f"program {program.pid}")
    sum(itertools.repeat(1, 10**12))


# ---- leaves something behind


@marked("leaves_a_program")
def leaves_a_program(job: Job) -> None:
    """Start a program and return."""
    program = subprocess.Popen(["sleep", "600"])
    mark(job, f"program {program.pid}")


@marked("prints")
def prints(job: Job, *, text: str, times: int = 1) -> None:
    """Write to stdout."""
    for _ in range(times):
        print(text)
    sys.stdout.flush()
