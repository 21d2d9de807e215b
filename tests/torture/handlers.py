"""The mix of jobs. Every run writes its start, its acts and its end into the history's file, from its own process.

While it runs it keeps a lock on a file of its job's. The kernel gives that up when the process ends, however it ends, and no
copy inherits it: a run that can't have it began while another process still ran the job, even one that hangs and can't write.
"""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from fencepost import Cancel, GiveUp, Job, Retry, Snooze, Stopped, handler
from torture.history import write

FILE = "TORTURE_HISTORY"
LOCKS = "TORTURE_LOCKS"
BETWEEN_ACTS = 0.025
LONG = 9.0
"""Seconds that a run takes which may lose its lease in the middle, and go on for longer than an instant if nobody ends it."""

ONE_TRANSACTION = "once"
STEPS = {"steps": 4, "many_steps": 90}
"""The kinds that write in several transactions, and in how many."""

INSERT = "insert into torture.effects (job, fence, step, pid) values (%s, %s, %s, %s)"
COMMIT_BY_HAND = "commit; begin"


class Run:
    """What a run writes down."""

    def __init__(self, job: Job) -> None:
        held = job._transactions._held
        self.job = job
        self.facts = {"job": job.id, "fence": held.fence}
        self.started = {"claim": held.name, "attempt": job.attempt, "tenant": job.tenant, "supervisor": os.getppid()}
        self._lock: int | None = None

    def note(self, what: str, **facts: Any) -> None:
        write(os.environ[FILE], what, pid=os.getpid(), **self.facts, **facts)

    def start(self) -> None:
        self._lock = os.open(f"{os.environ[LOCKS]}/{self.job.id}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.note("conflict", other=int(os.pread(self._lock, 20, 0) or b"0"))
        else:
            os.pwrite(self._lock, f"{os.getpid():<20}".encode(), 0)
        self.note("start", note=self.job.kind, **self.started)

    def work(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(BETWEEN_ACTS)
            self.note("act")

    def step(self, number: int) -> None:
        try:
            with self.job.transaction() as conn:
                conn.execute(INSERT, (self.job.id, self.facts["fence"], number, os.getpid()))
        except Stopped as stopped:
            if stopped.reason == "lease":
                self.note("refused", note=f"step {number}")
            raise

    def end(self, how: str) -> None:
        self.note("end", note=how)
        if self._lock is not None:
            os.close(self._lock)


def recorded(kind: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a handler that is given its Run."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def run(job: Job, **payload: Any) -> Any:
            run = Run(job)
            run.start()
            how = "returned"
            try:
                return function(run, **payload)
            except BaseException as error:
                how = type(error).__name__
                raise
            finally:
                run.end(how)

        return handler(kind, **options)(run)

    return register


@recorded("short")
def short(run: Run) -> None:
    run.work(0.1)


@recorded("long")
def long(run: Run) -> None:
    run.work(LONG)


@recorded("many_steps")
def many_steps(run: Run) -> None:
    for number in range(1, STEPS["many_steps"] + 1):
        run.work(LONG / STEPS["many_steps"])
        run.step(number)


@recorded("steps")
def steps(run: Run) -> None:
    for number in range(1, STEPS["steps"] + 1):
        run.work(0.2)
        run.step(number)


@recorded("once", transaction=True)
def once(run: Run) -> None:
    run.work(0.3)
    run.job.conn.execute(INSERT, (run.job.id, run.facts["fence"], 1, os.getpid()))
    run.work(0.7)


@recorded("fails")
def fails(run: Run, *, until: int) -> None:
    run.work(0.1)
    if run.job.attempt < until:
        raise ValueError(f"attempt {run.job.attempt} fails")


@recorded("retries")
def retries(run: Run) -> None:
    if run.job.attempt < 3:
        raise Retry("later", after=0.2)


@recorded("snoozes")
def snoozes(run: Run) -> None:
    if run.facts["fence"] < 4:
        raise Snooze(0.3)


@recorded("gives_up")
def gives_up(run: Run) -> None:
    raise GiveUp("hopeless")


@recorded("cancels")
def cancels(run: Run) -> None:
    raise Cancel("not needed")


@recorded("exits")
def exits(run: Run) -> None:
    run.work(0.1)
    os._exit(3)


@recorded("kills_itself")
def kills_itself(run: Run) -> None:
    run.work(0.1)
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


@recorded("segfaults")
def segfaults(run: Run) -> None:
    ctypes.string_at(0)


@recorded("hangs", max_runtime=1, max_attempts=2)
def hangs(run: Run) -> None:
    sum(itertools.repeat(1, 10**12))


@recorded("hogs", max_attempts=2)
def hogs(run: Run) -> None:
    taken = []
    for _ in range(20):
        taken.append(b"x" * 10_000_000)
        run.work(0.1)


@recorded("forks")
def forks(run: Run) -> None:
    """Leave a program in a session of its own and a copy of this process that goes on acting, in the group or outside of it."""
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    if os.fork() == 0:
        if run.job.id % 2:
            os.setsid()
        for _ in range(400):
            time.sleep(BETWEEN_ACTS)
            run.note("stray")
        os._exit(0)
    run.work(0.3)
    if run.job.attempt < 2:
        raise ValueError("to be tried again, and what was left must be gone by then")


@recorded("ends_itself", max_attempts=2)
def ends_itself(run: Run) -> None:
    """Commit by hand, and write in the transaction that follows: not the run's, and without a tenant."""
    with run.job.transaction() as conn:
        conn.execute(COMMIT_BY_HAND)
        conn.execute(INSERT, (run.job.id, run.facts["fence"], 1, os.getpid()))
        conn.execute(COMMIT_BY_HAND)
