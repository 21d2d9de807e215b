"""What is fought over: a server, supervisors on it, each with a network of its own, and jobs that keep coming."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL
from typing import Any

import psutil
import psycopg

from fencepost import enqueue
from fencepost.supervisor.stacks import STOPPED, status
from support.databases import Database
from support.processes import Supervisor
from support.servers import Server
from support.waiting import wait_until
from torture.handlers import FILE, LOCKS
from torture.history import History, read, write
from torture.network import Network

TESTS = Path(__file__).parents[1]
LEASE, HEARTBEAT = 3.0, 0.5
SETTINGS = {
    "concurrency": 5,
    "lease": LEASE,
    "heartbeat": HEARTBEAT,
    "poll": 0.5,
    "sweep": 0.25,
    "max_runtime": 20,
    "kill_grace": 0.3,
    "drain_timeout": 10,
    "max_attempts": 4,
    "backoff": 0.2,
    "backoff_max": 1,
    "max_rss": "100MB",
    "handlers": "torture.handlers",
    "log_level": "info",
}
ROW_LASTS = 3 * (LEASE + HEARTBEAT)
"""Seconds that the row of a supervisor which was killed stays at least."""

MIX: dict[str, int] = {
    "short": 4, "long": 4, "many_steps": 4, "steps": 3, "once": 4, "fails": 2, "retries": 1, "snoozes": 1, "gives_up": 1,
    "cancels": 1, "exits": 1, "kills_itself": 1, "segfaults": 1, "hangs": 1, "hogs": 1, "forks": 2, "ends_itself": 2,
}  # fmt: skip
WAITING = 20
"""Jobs that are not at rest, at most: so many that there is always one to claim, so few that what is lost runs again soon."""

UNFINISHED = "select count(*) from fencepost.jobs where status in ('queued', 'running')"
GRANTS = 'grant usage on schema torture to "{0}"; grant insert on torture.effects to "{0}"'


class Place:
    """Where a supervisor lives: one at a time, another when it has ended. `stopped_at` is since when it is frozen.

    With `timers` the kernel ends it when it is frozen past its leases. Without, as where a sandbox gives none, it wakes up
    and is late: then the fence is all that keeps its runs from writing.
    """

    def __init__(self, field: Field, number: int, *, timers: bool) -> None:
        self._field = field
        self._number = number
        self.timers = timers
        self.network = Network(field.server.port)
        self.supervisor = self._new()
        self.ended: list[Supervisor] = []
        self.stopped_at: float | None = None
        self.is_cut = False

    @property
    def is_free(self) -> bool:
        """Whether nothing was done to its supervisor that still lasts."""
        return self.stopped_at is None and not self.is_cut and self.supervisor.is_alive()

    def kill(self) -> None:
        """Kill the supervisor alone."""
        write(self._field.file, "killed supervisor", pids=[self.supervisor.pid])
        self.supervisor.signal(SIGKILL)
        self.supervisor.wait()

    def begin_again(self) -> None:
        """Start another supervisor if there is none."""
        if not self.supervisor.is_alive():
            self.ended.append(self.supervisor)
            self.supervisor = self._new()
            self.stopped_at = None

    def _new(self) -> Supervisor:
        field = self._field
        folder = field.folder / f"supervisor-{self._number}-{field.started}"
        folder.mkdir()
        field.started += 1
        url = field.database.worker_url.replace(f":{field.server.port}/", f":{self.network.port}/")
        command = ("-m", "torture.broken", field.broken, "run") if field.broken else ("-m", "fencepost", "run")
        environment = {
            "PYTHONPATH": str(TESTS),
            "TMPDIR": str(field.temporary),
            FILE: str(field.file),
            LOCKS: str(field.locks),
        }
        supervisor = Supervisor(url, folder, command=command, environment=environment, **SETTINGS)
        if not self.timers:
            # What timers are counted against: it asks for its own when it has seen the database.
            psutil.Process(supervisor.pid).rlimit(psutil.RLIMIT_SIGPENDING, (0, 0))
        return supervisor


class Field:
    """All of it. `broken` names what is broken of the product, '' is nothing."""

    def __init__(self, server: Server, folder: Path, seed: int, broken: str) -> None:
        self.server = server
        self.folder = folder
        self.broken = broken
        self.file = folder / "history"
        self.locks = folder / "locks"
        self.temporary = folder / "tmp"
        for one in (self.locks, self.temporary):
            one.mkdir()
        self.started = 0
        self.enqueued: dict[int, str] = {}
        self.counts: Counter[str] = Counter()
        self.surprises: list[str] = []
        self._random = random.Random(f"jobs {seed}")
        self._pack: list[str] = []
        self.database = Database.create(server)
        self.database.migrate()
        self.database.owner.execute((Path(__file__).with_name("tables.sql")).read_text(encoding="utf-8"))
        self.database.grant()
        self.database.owner.execute(GRANTS.format(self.database.worker))
        self.places = [Place(self, number, timers=number == 1) for number in (1, 2, 3)]

    def ask(self, query: str, *parameters: Any) -> list[Any]:
        """Ask the server; nothing where it is away."""
        try:
            return self.database.execute(query, parameters)
        except psycopg.OperationalError:
            self.database.close()
            return []

    def feed(self) -> None:
        """Enqueue until enough are waiting."""
        found = self.ask(UNFINISHED)
        for _ in range(WAITING - found[0][0] if found else 0):
            kind = self._next_kind()
            tenant = f"t{self._random.randrange(20)}"
            payload = {"until": self._random.randint(1, 5)} if kind == "fails" else {}
            key = f"{kind} {tenant}" if kind == "short" else None
            with suppress(psycopg.OperationalError):
                job = enqueue(self.database.owner, kind, payload, tenant=tenant, unique_key=key)
                self.enqueued[job] = tenant

    def _next_kind(self) -> str:
        """Deal the mix like a pack of cards, so that a short run has some of each."""
        if not self._pack:
            self._pack = [kind for kind, number in MIX.items() for _ in range(number)]
            self._random.shuffle(self._pack)
        return self._pack.pop()

    def look(self) -> None:
        """Start anew what has ended; only what was stopped for longer than it may be ends by itself."""
        for place in self.places:
            code = place.supervisor.process.poll()
            if code is None or (code == -SIGKILL and place.stopped_at is None):
                continue
            if place.stopped_at is None:
                self.surprises.append(f"supervisor {place.supervisor.pid} ended by itself, with {code}")
            else:
                write(self.file, "killed supervisor", at=place.stopped_at, pids=[place.supervisor.pid], note="by its own timer")
                self.counts["supervisors ended by their timer"] += 1
            place.begin_again()

    def come_to_rest(self, within: float) -> None:
        """Wait until there is no more to do."""

        def rests() -> bool:
            self.look()
            return self.ask(UNFINISHED) == [(0,)]

        try:
            wait_until(rests, within=within, what="the rest of all jobs")
        except AssertionError as error:
            self.surprises.append(str(error))

    def close(self) -> History:
        """End the supervisors as a deploy does, and return the history with what they have left."""
        left = list(self.surprises)
        living = [place.supervisor for place in self.places if place.supervisor.is_alive()]
        killed = [one for place in self.places for one in place.ended]
        left += self._standing_still(living)
        for one in killed:
            one.kill_all()
        # The rows of those that were killed are taken away by whoever leaves later than they last.
        stale = "select pid from fencepost.supervisors where seen_at < clock_timestamp() - make_interval(secs => %s)"
        old = {row.pid for row in self.ask(stale, ROW_LASTS)}
        for one in living:
            try:
                one.stop()
            except AssertionError as error:
                left.append(str(error))
            if one.process.poll() != 0:
                left.append(f"supervisor {one.pid} left with {one.process.poll()}, and was drained")
        known = {one.pid for one in killed}
        rows = {row.pid for row in self.ask("select pid from fencepost.supervisors")}
        left += [f"the row of supervisor {pid}" for pid in sorted(rows & old | rows - known)]
        left += self._left_on_the_server()
        left += [f"the file {path}" for path in self.temporary.rglob("*")]
        return read(self.database.owner, self.file, self.enqueued, left)

    def _standing_still(self, living: list[Supervisor]) -> list[str]:
        """Name the workers that were held until the database had told, and that nobody has let go since."""

        def still() -> list[tuple[int, int]]:
            return [(one.pid, pid) for one in living for pid in one.workers() if status(pid) in STOPPED]

        with suppress(AssertionError):
            wait_until(lambda: not still(), within=3)
        return [f"worker {pid} of supervisor {supervisor}, standing still" for supervisor, pid in still()]

    def _left_on_the_server(self) -> list[str]:
        sessions = "select application_name, state, query from pg_stat_activity where usename = %s"
        with suppress(AssertionError):
            wait_until(lambda: not self.ask(sessions, self.database.worker), within=10)
        left = [f"a session: {row}" for row in self.ask(sessions, self.database.worker)]
        left += [f"a prepared transaction: {row}" for row in self.ask("select gid from pg_prepared_xacts")]
        left += [f"an advisory lock: {row}" for row in self.ask("select objid from pg_locks where locktype = 'advisory'")]
        left += [f"notifications: {row}" for row in self.ask("select 1 where pg_notification_queue_usage() > 0")]
        return left

    def remove(self) -> None:
        """Leave nothing, whatever has happened."""
        for place in self.places:
            for one in [*place.ended, place.supervisor]:
                one.kill_all()
            place.network.close()
        self.database.close()
