"""The nemesis: accidents at random, by a seed, each written into the history. What it breaks for a while it also mends."""

from __future__ import annotations

import heapq
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from signal import SIGCONT, SIGKILL, SIGSTOP, Signals

from fencepost.supervisor.stacks import STOPPED, status
from support.processes import _descendants
from support.waiting import wait_until
from torture.field import Field, Place
from torture.handlers import LONG
from torture.history import boottime, write

SESSIONS = "select pid from pg_stat_activity where usename = %s order by backend_start"
LIVING = "select id from fencepost.jobs where status in ('queued', 'running') order by id"
LONGER_THAN_A_LEASE = (4.7, 6.0)
"""Until a job has passed on and runs elsewhere: lease, heartbeat, its limit and the sweep."""

WEIGHTS = {
    "kill_worker": 5, "kill_supervisor": 2, "end_session": 3, "restart_server": 1, "crash_server": 1, "kill_backend": 1,
    "freeze_worker": 3, "stall_supervisor": 3, "freeze_host": 10, "cut_network": 3, "burn": 2, "cancel": 4,
}  # fmt: skip


class Nemesis:
    """Does an accident after the other until its time is over. `without` names those that it leaves out."""

    def __init__(self, field: Field, seed: int, without: frozenset[str] = frozenset()) -> None:
        self._field = field
        self._random = random.Random(f"accidents {seed}")
        self._weights = {name: weight for name, weight in WEIGHTS.items() if name not in without}
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def rage(self, seconds: float) -> None:
        """Go on for so long, then mend all that is still broken."""
        until = time.monotonic() + seconds
        next_at = time.monotonic() + 1
        while time.monotonic() < until:
            self._mend(time.monotonic())
            self._field.look()
            # What comes late would still run when the accidents are over, and have nothing to fear.
            if self._field.server.is_running and time.monotonic() < until - LONG:
                self._field.feed()
            if time.monotonic() >= next_at:
                name = self._random.choices(list(self._weights), list(self._weights.values()))[0]
                getattr(self, name)()
                next_at = time.monotonic() + self._random.uniform(0.3, 1.2)
            time.sleep(0.05)
        self._mend(float("inf"))

    # ---- the accidents

    def kill_worker(self) -> None:
        """Kill a worker."""
        if pid := self._worker():
            self._tell("workers killed", pid)
            _send(pid, SIGKILL)

    def kill_supervisor(self) -> None:
        """Kill a supervisor, and start another one soon."""
        if place := self._place():
            self._field.counts["supervisors killed"] += 1
            place.kill()
            self._after(self._random.uniform(0.3, 2), place.begin_again)

    def end_session(self) -> None:
        """End a session on the server."""
        if found := self._field.ask(SESSIONS, self._field.database.worker):
            pid = self._random.choice(found)[0]
            self._tell("sessions ended", pid)
            self._field.ask("select pg_terminate_backend(%s)", pid)

    def restart_server(self) -> None:
        """Stop the server, in order or at once, and start it soon."""
        if self._field.server.is_running:
            mode = self._random.choice(("fast", "immediate"))
            self._tell("servers restarted", note=mode)
            self._field.server.stop(mode)
            self._after(self._random.uniform(0, 1.5), self._field.server.start)

    def crash_server(self) -> None:
        """Kill all of the server, and start it soon."""
        if self._field.server.is_running:
            self._tell("servers killed")
            self._field.server.kill()
            self._after(self._random.uniform(0, 1.5), self._field.server.start)

    def kill_backend(self) -> None:
        """Kill a session's process on the server: the server ends all of them, and recovers."""
        if found := self._field.ask(SESSIONS, self._field.database.worker):
            pid = self._random.choice(found)[0]
            self._tell("backends killed", pid)
            _send(pid, SIGKILL)

    def freeze_worker(self) -> None:
        """Stop a worker for a while; its supervisor speaks for it."""
        if pid := self._worker():
            self._tell("workers frozen", pid)
            _send(pid, SIGSTOP)
            self._after(self._random.uniform(0.5, 5), lambda: _send(pid, SIGCONT))

    def stall_supervisor(self) -> None:
        """Stop a supervisor alone for longer than a lease: one that the kernel ends for that."""
        if place := self._place(with_timers=True):
            self._tell("supervisors stalled", place.supervisor.pid)
            supervisor = place.supervisor
            place.stopped_at = boottime()
            supervisor.signal(SIGSTOP)

            def wake() -> None:
                supervisor.signal(SIGCONT)
                self._wakes(place)

            self._after(self._random.uniform(*LONGER_THAN_A_LEASE), wake)

    def freeze_host(self) -> None:
        """Stop a supervisor with all its workers and their programs for longer than a lease."""
        place = self._place()
        if place is None:
            return
        supervisor = place.supervisor
        place.stopped_at = boottime()
        supervisor.signal(SIGSTOP)
        self._field.counts["hosts frozen"] += 1
        pids = [supervisor.pid]
        _wait_until_it_stands_still(supervisor.pid)
        # Its workers are found at once; then whatever else is its own, until none is left that was forked in between.
        found = list(_descendants(supervisor.pid))
        while found:
            for pid in found:
                _send(pid, SIGSTOP)
            for pid in found:
                _wait_until_it_stands_still(pid)
            pids += found
            # Not before they are stopped: only from then on is a job excused.
            write(self._field.file, "froze host", pids=[supervisor.pid, *found])
            found = [process.pid for process in supervisor.left() if process.pid not in pids]
        pause = self._random.choice((0.0, self._random.uniform(0.15, 0.35)))

        def wake() -> None:
            write(self._field.file, "wakes host", pids=pids)
            for pid in pids:
                if pid != supervisor.pid:
                    _send(pid, SIGCONT)
            # In what order the kernel gives them their turns is its own affair: late before they are looked at, or just then.
            time.sleep(pause)
            supervisor.signal(SIGCONT)
            write(self._field.file, "woke host", pids=pids)
            self._wakes(place)

        self._after(self._random.uniform(*LONGER_THAN_A_LEASE), wake)

    def cut_network(self) -> None:
        """Cut the network of one supervisor and its workers for a while."""
        if place := self._place():
            how = self._random.choice(("stall", "stall", "reset"))
            self._tell("partitions", place.supervisor.pid, note=how)
            place.is_cut = True
            place.network.cut(how)

            def heal() -> None:
                write(self._field.file, "healed", pids=[place.supervisor.pid])
                place.network.heal()
                place.is_cut = False

            self._after(self._random.uniform(1, 6), heal)

    def burn(self) -> None:
        """Let others have the processors for a while."""
        self._tell("loads")
        programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]

        def end() -> None:
            for program in programs:
                program.kill()
                program.wait()

        self._after(self._random.uniform(1, 2.5), end)

    def cancel(self) -> None:
        """Cancel a job, whether it runs or waits."""
        if found := self._field.ask(LIVING):
            job = self._random.choice(found)[0]
            write(self._field.file, "cancelled", job=job)
            self._field.counts["cancels"] += 1
            self._field.ask("select fencepost.cancel(%s)", job)

    # ---- whom, and when

    def _place(self, *, with_timers: bool = False) -> Place | None:
        """Return a place that nothing was done to. One is always left alone: somebody has to take over."""
        free = [place for place in self._field.places if place.is_free]
        fit = [place for place in free if place.timers or not with_timers]
        chosen = self._random.random()
        return fit[int(chosen * len(fit))] if fit and len(free) > 1 else None

    def _worker(self) -> int | None:
        workers = [pid for place in self._field.places if place.is_free for pid in place.supervisor.workers()]
        chosen = self._random.random()
        return workers[int(chosen * len(workers))] if workers else None

    def _tell(self, what: str, *pids: int, note: str = "") -> None:
        self._field.counts[what] += 1
        write(self._field.file, what, pids=list(pids), note=note)

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._numbers), act))

    def _mend(self, until: float) -> None:
        while self._later and self._later[0][0] <= until:
            heapq.heappop(self._later)[2]()

    def _wakes(self, place: Place) -> None:
        """Not before it has looked around is it free again; whether it outlives that, it says itself."""

        def forget() -> None:
            self._field.look()
            place.stopped_at = None

        self._after(1.5, forget)


def _wait_until_it_stands_still(pid: int) -> None:
    """Wait for a stop to take effect: whoever is in the middle of a fork goes on until that is done, and its child is seen."""
    with suppress(AssertionError):  # asleep in the kernel, where it forks nobody
        wait_until(lambda: status(pid) in (*STOPPED, b"Z", b"X"), within=1.0)


def _send(pid: int, signum: Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signum)
