"""The accidents. Each is the same for every peer, ends when all is settled or after its time, and is told as plain facts."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from judge import Run, overlap, runs
from peer import Place, TooLate
from peers.peer import Trouble
from peers.processes import lives, send

from worker import Worker

LIMIT = 80
"""Seconds that are watched after an accident."""
QUIET = 3
BOOT = 60
TAKEOVER = 45

INNOCENT = ("L1", "L2")
BEHIND = ("Q1", "Q2", "Q3")
POISON = "P"
LONG = 40
"""Ticks: eight seconds."""
SHORT = 5
AT_WORK = {"after": INNOCENT, "ticks": 5}
"""Between jobs to enqueue: go on once the innocents have been at work for a second."""

REFUSAL = re.compile(
    r"lease was lost|lost ?claim|no longer|too late|expired|stale|fence|reclaimed|superseded|not currently running",
    re.IGNORECASE,
)
"""What a worker may say of a write that came too late."""

Facts = dict[str, Any]

stopping = threading.Event()
"""Set by Ctrl-C: trials end what they have started, and no others begin."""


class Trial:
    """One peer, one accident: what is watched, and since when."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.accident = 0.0
        self.history: dict[str, list[tuple[float, str, str]]] = {}
        """What the table said of each job, whenever that changed."""
        self.workers: list[Worker] = []

    def start_worker(self) -> Worker:
        """Start one more worker."""
        self.workers.append(Worker(self.place))
        return self.workers[-1]

    def runs(self, *jobs: str) -> list[Run]:
        """Return the runs of these jobs so far, or of all."""
        return [run for run in runs(self.place.log) if not jobs or run.job in jobs]

    def look(self) -> dict[str, tuple[str, str]]:
        """Ask the table, and remember what has changed."""
        self.place.age()
        try:
            states = self.place.states()
        except psycopg.OperationalError:
            return {}
        for job in (*INNOCENT, POISON, *BEHIND):
            state, attempts = states.get(job, ("gone", ""))
            told = self.history.setdefault(job, [])
            if not told or told[-1][1:] != (state, attempts):
                told.append((time.time(), state, attempts))
        return states

    def wait(self, condition: Callable[[], object], within: float, what: str) -> None:
        """Wait, and look on meanwhile."""
        deadline = time.time() + within
        while not condition():
            if stopping.is_set():
                raise Trouble("stopped by hand")
            if time.time() > deadline:
                raise Trouble(f"{what} did not come about within {within:g} s")
            self.look()
            time.sleep(0.1)

    def has_started(self, *jobs: str) -> bool:
        """Return whether each has a run."""
        return set(jobs) <= {run.job for run in self.runs()}

    def still_at_work(self, before: float) -> None:
        """Refuse a trial in which the innocents were done before the accident."""
        runs_then = [run for run in self.runs(*INNOCENT) if run.start < before]
        if len(runs_then) < len(INNOCENT) or any(run.ended and run.last < before for run in runs_then):
            raise TooLate("the innocents were not at work at the accident")

    def begin(self) -> Worker:
        """Start a worker, and have a first job done, so that nothing measured is its start."""
        worker = self.start_worker()
        self.place.enqueue({"label": "Q0", "ticks": 1})
        self.wait(lambda: any(run.ended for run in self.runs("Q0")), BOOT, "the run of a first job")
        return worker

    def settle(self, *wanted: str) -> None:
        """Watch until each of these jobs is at its end and all is quiet, or until the time is over."""
        quiet_since = None
        while time.time() < self.accident + LIMIT and not stopping.is_set():
            states = self.look()
            over = all(self._is_over(job, states) for job in wanted)
            last = max(run.last for run in self.runs())
            quiet_since = (quiet_since or time.time()) if over and time.time() - last > QUIET else None
            if quiet_since and time.time() - quiet_since > QUIET:
                return
            time.sleep(0.2)

    def _is_over(self, job: str, states: dict[str, tuple[str, str]]) -> bool:
        state = states.get(job, ("gone", ""))[0]
        if job == POISON:
            return state in {"done", "dead"}  # Gone may be out of sight only.
        return state == "dead" or (state != "running" and any(run.ended for run in self.runs(job)))

    def hangs_on(self) -> bool:
        """Return whether the poison's last process is still there, and has done nothing since."""
        last = self.runs(POISON)[-1]
        since = [run for run in self.runs() if run.pid == last.pid and run.last > last.last + 0.5]
        return not since and any(process.pid == last.pid for process in self.workers[0].tree() if lives(process))

    # ---- what is told

    def after(self, at: float) -> float:
        """Return seconds after the accident."""
        return round(at - self.accident, 1)

    def told(self, *jobs: str) -> Facts:
        """Tell of each job its runs, and what the table says in the end and has said on the way."""
        self.look()
        facts: Facts = {}
        for job in jobs:
            of_job = self.runs(job)
            facts[job] = {
                "runs": [
                    {"pid": run.pid, "start": self.after(run.start), "last": self.after(run.last), "ended": run.ended}
                    for run in of_job
                ],
                "state": self.history[job][-1][1],
                "attempts": next((attempts for _, _, attempts in reversed(self.history[job]) if attempts), ""),
                "history": [(self.after(at), state, attempts) for at, state, attempts in self.history[job]],
            }
        return facts

    def again(self) -> float | None:
        """Return after how many seconds the first innocent ran again."""
        starts = [run.start for run in self.runs(*INNOCENT) if run.start > self.accident]
        return self.after(min(starts)) if starts else None

    def facts(self, *jobs: str) -> Facts:
        """Tell what is told of every accident."""
        return {
            "jobs": self.told(*jobs),
            "exits": [self.after(at) for at in self.workers[0].exits],
            "again": self.again(),
            "overlap": overlap(self.runs()),
            "watched": self.after(time.time()),
        }


@contextmanager
def trial(place: Place) -> Iterator[Trial]:
    """Have a trial, of which nothing runs on."""
    one = Trial(place)
    try:
        yield one
    finally:
        for worker in one.workers:
            for process in worker.tree():
                send(process, signal.SIGCONT)
            worker.end()


def _jobs(names: tuple[str, ...], ticks: int) -> list[dict[str, object]]:
    return [{"label": name, "ticks": ticks} for name in names]


def poisoned(place: Place, way: str) -> Facts:
    """Two innocents run, three wait, and a job exits, segfaults or hangs in C."""
    with trial(place) as now:
        now.begin()
        place.enqueue(*_jobs(INNOCENT, LONG), AT_WORK, {"label": POISON, "way": way}, *_jobs(BEHIND, SHORT))
        now.wait(lambda: now.has_started(POISON), 30, "the poison's start")
        now.accident = now.runs(POISON)[0].start
        now.still_at_work(before=now.accident)
        now.settle(*INNOCENT, *BEHIND, POISON)
        return {**now.facts(*INNOCENT, *BEHIND, POISON), "hangs_on": now.hangs_on()}


def killed(place: Place, *, whole: bool) -> Facts:
    """Two innocents run; the whole worker is killed, or its main process alone."""
    with trial(place) as now:
        worker = now.begin()
        place.enqueue(*_jobs(INNOCENT, LONG), AT_WORK, *_jobs(BEHIND, SHORT))
        tree = worker.tree()
        now.accident = time.time()
        for process in tree if whole else tree[:1]:
            send(process, signal.SIGKILL)
        now.still_at_work(before=now.accident)
        now.wait(lambda: time.time() > now.accident + 3, 10, "three seconds")
        left = [process.pid for process in tree if lives(process)]
        now.settle(*INNOCENT, *BEHIND)
        pids = {process.pid for process in tree}
        acts = [run.last for run in now.runs() if run.pid in pids]
        takes = [run.job for run in now.runs() if run.pid in pids and run.start > now.accident + 0.5]
        return {
            **now.facts(*INNOCENT, *BEHIND),
            "processes": len(tree),
            "orphans": len(left),
            "orphans_acted_until": max(0.0, now.after(max(acts))) if acts else None,
            "orphans_took_jobs": takes,
        }


def frozen(place: Place) -> Facts:
    """A worker is frozen with two innocents three seconds in; another takes over, and a second later the first wakes."""
    with trial(place) as now:
        worker = now.begin()
        place.enqueue(*_jobs(INNOCENT, LONG), {**AT_WORK, "ticks": 15})
        tree = worker.tree()
        now.accident = time.time()
        for process in tree:
            send(process, signal.SIGSTOP)
        now.still_at_work(before=now.accident)
        now.start_worker()
        place.enqueue(*_jobs(BEHIND, SHORT))
        try:
            now.wait(lambda: now.again() is not None, TAKEOVER, "the takeover")
            now.wait(lambda: time.time() > now.accident + (now.again() or 0) + 1, 5, "a second")
        except Trouble:
            pass
        said_before = len(worker.said())
        woken = time.time()
        for process in tree:
            send(process, signal.SIGCONT)
        now.settle(*INNOCENT, *BEHIND)
        said = worker.said()[said_before:]
        return {
            **now.facts(*INNOCENT, *BEHIND),
            "woken": now.after(woken),
            "said": [line[:300] for line in said if REFUSAL.search(line)][:10],
        }


SCENARIOS: dict[str, Callable[[Place], Facts]] = {
    "exit": lambda place: poisoned(place, "exit"),
    "segfault": lambda place: poisoned(place, "segfault"),
    "hang": lambda place: poisoned(place, "hang"),
    "kill": lambda place: killed(place, whole=True),
    "kill-main": lambda place: killed(place, whole=False),
    "freeze": frozen,
}
