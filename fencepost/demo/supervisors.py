"""Supervisors of the demo: `fencepost run`, in processes of their own, as anyone would start it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from fencepost.demo import programs
from fencepost.demo.stop import Stop, Trouble

LEASE = 4.0
"""Seconds: short, for a story that is told in twenty, and long enough for a machine that has other things to do."""

WORKERS = 4
"""Of the supervisor that stays."""

SETTINGS = {
    "HANDLERS": "fencepost.demo.jobs",
    "LEASE": f"{LEASE:g}s",
    "HEARTBEAT": "800ms",
    "POLL": "500ms",
    "SWEEP": "500ms",
    "MAX_RUNTIME": "30s",
    "BACKOFF": "300ms",
    "BACKOFF_MAX": "600ms",
    "DRAIN_TIMEOUT": "5s",
    "LOG_FORMAT": "json",
}

TITLE = re.compile(r"fencepost: worker (\d+) (.*)")


@dataclass(frozen=True, slots=True, order=True)
class Worker:
    """A worker as its process title tells: its slot, and what it runs."""

    slot: int
    pid: int
    runs: str

    def has(self, job: int) -> bool:
        """Whether it runs `job`."""
        return f"#{job} " in self.runs


class Supervisor:
    """One supervisor. `end` is called also if it could not be started, or has ended by itself."""

    def __init__(self, name: str, folder: Path, environment: Mapping[str, str], stop: Stop) -> None:
        self.name = name
        self.log = folder / f"supervisor-{name}.log"
        self._folder = folder
        self._environment = environment
        self._stop = stop
        self._process: subprocess.Popen[bytes] | None = None
        self._frozen: list[int] = []
        self._started_at = 0.0

    # ---- its life

    def start(self, database_url: str, *, concurrency: int, queues: str, wakes_late: bool = False) -> None:
        """Start it, as the plain login that `database_url` names.

        With `wakes_late` the kernel gives it no timer, and so does not end it when it has been frozen past its leases.
        """
        given = {**SETTINGS, "DATABASE_URL": database_url, "CONCURRENCY": str(concurrency), "QUEUES": queues}
        environment = {**self._environment, **{f"FENCEPOST_{name}": value for name, value in given.items()}}
        command = [sys.executable, "-m", "fencepost", "run"]
        # Its own folder as working directory: a module of the caller's could bear the name of one of ours.
        self._process = programs.start(command, self.log, environment, dies_by=signal.SIGKILL, folder=self._folder)
        if wakes_late:
            # Of what timers take, none: set long before it asks for one, which it does when it has seen the database.
            psutil.Process(self._process.pid).rlimit(psutil.RLIMIT_SIGPENDING, (0, 0))
        self._started_at = time.monotonic()

    @property
    def pid(self) -> int:
        """The pid of the process that was started, dead or alive."""
        if self._process is None:
            raise Trouble(f"supervisor {self.name} was not started")
        return self._process.pid

    @property
    def age(self) -> float:
        """Seconds since its start."""
        return time.monotonic() - self._started_at

    def is_alive(self) -> bool:
        """Whether the process that was started still runs."""
        return self._process is not None and self._process.poll() is None

    def look(self) -> None:
        """Raise Trouble if it has ended."""
        if self._process is not None and self._process.poll() is not None:
            raise Trouble(f"supervisor {self.name} ended with {self._process.returncode}")

    def drain(self) -> int:
        """Ask it to leave, and return its exit code."""
        process = self._process
        if process is None:
            raise Trouble(f"supervisor {self.name} was not started")
        process.terminate()
        self._stop.until(lambda: process.poll() is not None, 10, f"the end of supervisor {self.name}")
        return process.returncode

    def end(self) -> None:
        """Kill it with all its workers, if it still runs."""
        if self._process is not None:
            programs.kill(self._process)

    # ---- a host that freezes, and wakes up

    def freeze(self, worker: Worker) -> None:
        """Stop it, and then its worker, as a host that freezes does. It has no say in it."""
        self._frozen = [self.pid, worker.pid]
        for pid in self._frozen:
            os.kill(pid, signal.SIGSTOP)
        self._stop.until(lambda: all(map(programs.is_stopped, self._frozen)), 2, "the freeze")

    def wake_worker(self) -> None:
        """Let the frozen worker go on."""
        os.kill(self._frozen[1], signal.SIGCONT)

    def wake(self) -> None:
        """Let the frozen supervisor go on."""
        os.kill(self._frozen[0], signal.SIGCONT)

    # ---- what is seen of it

    def workers(self) -> list[Worker]:
        """Return its workers that have started, by their slots."""
        titles = [(pid, TITLE.match(title)) for pid, title in programs.children(self.pid)]
        return sorted(Worker(int(title[1]), pid, title[2]) for pid, title in titles if title)

    def events(self, event: str) -> Iterator[dict[str, Any]]:
        """Yield the lines of its log that tell of `event`."""
        if not self.log.exists():
            return
        for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines():
            if f'"{event}"' not in line:
                continue
            try:
                told = json.loads(line)
            except ValueError:
                continue  # Half of a line, as yet.
            if told.get("event") == event:
                yield told
