"""Every statement of a supervisor and its workers, every way in which it can fail, and what has to be so all the same."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from itertools import count
from typing import Any

from fencepost import enqueue
from support.databases import Database
from support.jobs import Jobs
from support.processes import Supervisor
from support.proxy import CONNECT, Fault, Proxy
from support.waiting import wait_until

WORK = {
    "worker": (
        "claim", "lanes", "held", "end_sessions", "session_state", "begin", "limits", "context", "commit", "roll_back",
        "left_in_session", "forget", "as_new", "forget_plans", "reset_login", "reset_role", "reset_all", "finish",
        "finish_and_commit", "outcome", "plan_once", CONNECT,
    ),
    "duty": ("look", "sweep", "register", "prune", CONNECT),
    "heartbeat": ("heartbeat", CONNECT),
    "booking": ("end_sessions", "held", "finish", CONNECT),
    "listen": ("listen", CONNECT),
}  # fmt: skip
"""Who sends what while work is done."""

START = ("proxied", "schema_is_there", "login", "rights", "schema_version", "hidden", "bypassing", "policies", "living")
"""What a supervisor sends before it does any work, and again until that has been answered."""

END = ("deregister",)

WITHIN_OTHERS = {("worker", "end")}
"""Sent only in a message with others that are made to fail, as a whole: that of a begin with a cleaning before it."""

OF_OTHERS = {
    "by hand": (
        "acting_as", "cancel", "counts", "due_kinds", "get", "list", "newest", "retry", "roles", "runs", "show", "statuses",
        "tables", "worker_logins",
    ),
    "behind a pooler, or beside one": (
        "end", "fire_constraints", "marked", "notify", "ours", "unlisten",
    ),
    "of a migration": ("create_schema", "limit_locks", "lock_migrations", "note_version", "schema_exists"),
    "of a job, on another connection": ("bound",),
    "of whoever enqueues, in a transaction of its own": ("enqueue", "enqueue_many", "own_tenant"),
    "of jobs run inline": ("check_constraints", "hold", "moment", "release", "restore", "savepoint", "snapshot", "undo"),
}  # fmt: skip
"""Statements that neither a supervisor nor a worker sends by itself."""

WAYS: tuple[dict[str, Any], ...] = (
    *({"way": way} for way in ("cut_before", "cut_after", "hang_before", "hang_after", "garble")),
    *({"way": "delay", "seconds": seconds} for seconds in (0.2, 1.5)),
    *(
        {"way": "error", "sqlstate": sqlstate}
        for sqlstate in ("40001", "40P01", "53300", "57014", "57P01", "25006", "42501", "XX000")
    ),
)

NEEDS = {
    ("worker", "outcome"): ("finish_and_commit", "cut_after"),
    ("worker", "held"): ("claim", "cut_after"),
    ("worker", "end_sessions"): ("claim", "cut_after"),
}
"""What is only sent after another statement's answer was lost."""

LEASE = timedelta(seconds=6)

SETTINGS: dict[str, Any] = {
    "handlers": "handlers_of_statements", "concurrency": 4, "lease": LEASE.total_seconds(), "heartbeat": "0.7s", "poll": "0.5s",
    "sweep": "0.3s", "max_runtime": "3s", "kill_grace": "0.2s", "backoff": "0.2s", "log_level": "info",
}  # fmt: skip

SOONER = {
    "sitecustomize.py": """
import fencepost.supervisor.kill, fencepost.supervisor.main, fencepost.supervisor.prune, fencepost.supervisor.watch

fencepost.supervisor.main.STATEMENT_LIMIT = 1.0
fencepost.supervisor.watch.CLAIM_MAY_TAKE = 2.0
fencepost.supervisor.kill.FINISH_MAY_TAKE = 1.0
fencepost.supervisor.prune.LOOK_EVERY = 0.5
"""
}
"""Files for a supervisor whose time limits are shorter: with its own a statement that hangs takes five seconds, or thirty.

And which looks for what is to be deleted more often than each minute."""

MIX = ("takes_longer", "quick", "notes", "notes_awaited", "notes_once", "notes_once", "rolls_back", "dies")
AT_REST = ("done", "dead")
LEFT = """
update fencepost.jobs set status = 'running', attempts = 1, max_attempts = 9, fence = 1, locked_by = %s,
    locked_until = clock_timestamp() + interval '0.1 s', started_at = clock_timestamp()
where id = %s
"""
LINES_A_FAULT = 25


def while_working() -> list[Fault]:
    """Return a fault of each kind, for all that is sent while work is done."""
    return [Fault(statement, who, **way) for who, sent in WORK.items() for statement in sent for way in WAYS]


def at_the_start() -> list[Fault]:
    """Return a fault of each kind, for all that is sent before work is done."""
    return [Fault(statement, "duty", **way) for statement in (CONNECT, *START) for way in WAYS]


def in_rounds(faults: Iterable[Fault], chance: random.Random, most: int) -> list[list[Fault]]:
    """Return the faults, in random order, in rounds of at most `most`, with no statement twice in one."""
    rounds: list[list[Fault]] = []
    faults = list(faults)
    for fault in chance.sample(faults, len(faults)):
        fitting = (one for one in rounds if len(one) < most and not any(_are_of_one(fault, other) for other in one))
        one = next(fitting, [])
        if not one:
            rounds.append(one)
        one.append(fault)
    return rounds


def _are_of_one(fault: Fault, other: Fault) -> bool:
    return (fault.who, fault.statement) == (other.who, other.statement)


class Field:
    """A supervisor behind a proxy, and the queue that it works on."""

    def __init__(self, supervisor: Supervisor, proxy: Proxy, database: Database) -> None:
        self.supervisor = supervisor
        self.proxy = proxy
        self.database = database
        self.jobs = Jobs(database)
        self._numbers = count(1)

    def go_through(self, faults: list[Fault], within: float = 20.0) -> None:
        """Have the faults happen under work, and see that everything is as it should be afterwards."""
        lines = len(self.supervisor.lines())
        go = self.supervisor.folder / f"go-{next(self._numbers)}"
        steady = self.jobs.enqueue("waits_for_a_file", {"path": str(go)}, priority=-1)
        self.supervisor.wait_for_worker_of(steady)
        for fault in faults:
            if (needed := NEEDS.get((fault.who, fault.statement))) is not None:
                self.proxy.arm(Fault(needed[0], fault.who, needed[1]))
            self.proxy.arm(fault)
        for who in {fault.who for fault in faults if fault.statement in (CONNECT, "listen")}:
            self.proxy.cut(who)
        made = self._work_until_hit(faults, within)
        self.proxy.disarm()
        after = self.database.value("select clock_timestamp()")
        for job in made:
            self._came_to_rest(job, within)
        if [fault.who for fault in faults if fault.who in ("booking", "worker")] == ["booking"]:
            # Tried again, within the lease.
            died = [job for job in made if self.jobs[job].kind == "dies"]
            assert {(*self.jobs.outcomes(job),) for job in died} == {("crashed",)}
        self._duties_go_on(steady, after)
        go.touch()
        # Nothing that befalls others, and no one heartbeat that fails, costs a run that goes on meanwhile.
        assert self.jobs.wait_for(steady, AT_REST, within).attempts == 1
        assert self.jobs.outcomes(steady) == ["done"], self.supervisor.tail()
        assert self.database.value("select count(*) from fencepost.jobs where status = 'running'") == 0
        assert self.supervisor.is_alive()
        told = self.supervisor.lines()[lines:]
        assert not [line for line in told if "a duty failed" in line or "a task failed" in line], told
        assert len(told) < LINES_A_FAULT * len(faults) + 10 * len(made), told

    def unknown(self) -> set[tuple[str, str]]:
        """Return who has sent what it is not known to send: each is to be made to fail."""
        known = {(who, name) for who, sent in WORK.items() for name in sent}
        return self.proxy.seen - known - WITHIN_OTHERS - {("duty", name) for name in (*START, *END)}

    def _work_until_hit(self, faults: list[Fault], within: float) -> list[int]:
        made: list[int] = []
        until = time.monotonic() + within
        while True:
            made += [self.jobs.enqueue(kind) for kind in MIX]
            made.append(self._leave_a_lease())
            try:
                wait_until(lambda: all(fault.hit.is_set() for fault in faults), within=2)
            except AssertionError:
                missed = [str(fault) for fault in faults if not fault.hit.is_set()]
                assert time.monotonic() < until, f"{missed} did not happen; the log ends:\n{self.supervisor.tail()}"
            else:
                return made

    def _leave_a_lease(self) -> int:
        """Return a job that a supervisor which is gone has left running."""
        with self.database.conn(autocommit=False) as conn:
            job = enqueue(conn, "notes_once", tenant=1)
            conn.execute(LEFT, [f"gone{job}:1", job])
        return job

    def _came_to_rest(self, job: int, within: float) -> None:
        row = self.jobs.wait_for(job, AT_REST, within)
        ends = Counter(self.jobs.outcomes(job))
        assert row.attempts <= row.max_attempts
        assert ends["done"] == (row.status == "done")
        assert sum(ends.values()) - ends["interrupted"] == row.attempts, (row, ends)
        wrote = len(self.jobs.rows(job))
        if row.kind == "notes_once":
            assert wrote == ends["done"], (row, ends, wrote)
        elif row.kind == "rolls_back":
            assert wrote == 0, (row, ends, wrote)
        elif row.kind.startswith("notes"):
            assert (row.status, wrote > 0) == ("done", True), (row, ends, wrote)

    def _duties_go_on(self, steady: int, after: Any) -> None:
        wait_until(lambda: (self.jobs[steady].locked_until or after) > after + LEASE, what="a heartbeat")
        seen = "select count(*) from fencepost.supervisors where seen_at > %s"
        wait_until(lambda: self.database.value(seen, [after]), what="the supervisor's row")
        left = self._leave_a_lease()
        assert self.jobs.wait_for(left).attempts > 1
        assert self.jobs.outcomes(left)[0] == "lost"
