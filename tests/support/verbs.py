"""The table's verbs as a worker and a supervisor send them, with everything filled in that a test does not speak of."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.rows import namedtuple_row

from fencepost.job import Ended, Outcome
from fencepost.jobs.claim import Claim, Lane, claim, claim_arguments, finish_and_claim, lanes
from fencepost.jobs.finish import NOTHING, finish
from fencepost.jobs.look import Read
from fencepost.jobs.sql import in_schema, statement
from fencepost.jobs.sweep import Lease
from support.databases import Database

START = datetime.min.replace(tzinfo=UTC)
LEASE = timedelta(seconds=60)
KINDS = {"ok": 3}

ASKS_NOTHING = {"queues": [], "kinds": [], "idle": 0, "leases": False, "mark": None, "ids": [], "age": timedelta()}
"""A look that asks for neither work nor leases."""

_names = count(1)


def new_name() -> str:
    """Return the name of a claim that nobody had."""
    return f"tester:{next(_names)}"


def lane(queue: str = "default", priority: int = 0, after_run_at: datetime = START, after_id: int = 0) -> Lane:
    """Return a lane, searched from its start unless told otherwise."""
    return Lane(queue, priority, after_run_at, after_id)


def pages_of(database: Database, verb: str, arguments: dict[str, Any]) -> int:
    """Return how many pages a statement touches, once it has been planned and has found room for its new rows."""
    plan = _kept_plan(database, verb, arguments)
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def steps_of(database: Database, verb: str, arguments: dict[str, Any], *settings: str) -> int:
    """Return how many rows the steps of a statement handle in all."""
    return _steps(_kept_plan(database, verb, arguments, *settings))


def _kept_plan(database: Database, verb: str, arguments: dict[str, Any], *settings: str) -> dict[str, Any]:
    """Return what a statement did by the plan that a session keeps of it, for all values."""
    names = list(arguments)
    text = statement(verb, "fencepost").decode() % {name: f"${place}" for place, name in enumerate(names, 1)}
    places = ", ".join(f"%({name})s" for name in names)
    explain = f"explain (analyze, buffers, timing off, format json) execute kept ({places})".encode()
    with database.conn(cursor_factory=psycopg.ClientCursor) as conn:
        for setting in ("plan_cache_mode = force_generic_plan", *settings):
            conn.execute(f"set {setting}".encode())
        conn.execute(f"prepare kept as {text}".encode())
        for _ in range(2):
            with conn.transaction(force_rollback=True):
                row = conn.execute(explain, arguments).fetchone()
    return dict(row[0][0]["Plan"]) if row else {}


def _steps(plan: dict[str, Any]) -> int:
    handled = sum(plan.get(name, 0) for name in ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Join Filter"))
    return round(handled * plan["Actual Loops"]) + sum(map(_steps, plan.get("Plans", [])))


def pages_of_a_claim(database: Database, at: Lane) -> int:
    """Return how many pages a claim touches."""
    return pages_of(database, "claim", {**NOTHING, **claim_arguments("tester:explain", [at], KINDS, LEASE)})


class Verbs:
    """The verbs on one connection."""

    def __init__(self, conn: Connection[Any], schema: str = "fencepost") -> None:
        self.conn = conn
        self.schema = schema

    def claim(
        self,
        lanes: Sequence[Lane] | None = None,
        *,
        kinds: dict[str, int] | None = None,
        name: str | None = None,
        lease: timedelta = LEASE,
    ) -> Claim | None:
        """Claim a job, from the start of the default lane unless told otherwise."""
        return claim(
            self.conn,
            self.schema,
            name=name or new_name(),
            lanes=[lane()] if lanes is None else lanes,
            max_attempts=KINDS if kinds is None else kinds,
            lease=lease,
        )

    def must_claim(self, **arguments: Any) -> Claim:
        """Claim a job that must be there."""
        claimed = self.claim(**arguments)
        assert claimed is not None, "there was no job to claim"
        return claimed

    def lanes(self, *queues: str) -> list[tuple[str, int]]:
        """Return the lanes of the queues, of `default` if none is named."""
        return lanes(self.conn, self.schema, queues or ("default",))

    def finish(self, claimed: Claim, ended: Ended | str = Ended.done, **outcome: Any) -> bool:
        """Finish a run; `outcome` is what else an Outcome has, and `fence` or `name` to be wrong about."""
        fence = outcome.pop("fence", claimed.fence)
        name = outcome.pop("name", claimed.name)
        return finish(self.conn, self.schema, claimed.id, fence, name, Outcome(Ended(ended), **outcome))

    def finish_and_claim(self, claimed: Claim, ended: Ended | str = Ended.done, **outcome: Any) -> tuple[bool, Claim | None]:
        """Finish a run and claim the next job, from the start of the default lane, in one statement."""
        return finish_and_claim(
            self.conn, self.schema, claimed, Outcome(Ended(ended), **outcome),
            name=new_name(), lanes=[lane()], max_attempts=KINDS, lease=LEASE,
        )  # fmt: skip

    def hold(self, claimed: Claim, **wrong: Any) -> None:
        """Demand that a run still holds its job, as at the end of a job's transaction."""
        arguments = {"id": claimed.id, "fence": claimed.fence, "name": claimed.name, **wrong}
        self.conn.execute(in_schema("select fencepost.hold(%(id)s, %(fence)s, %(name)s)", self.schema), arguments)

    def heartbeat(self, *claims: Claim, lease: timedelta = LEASE, progress: str | None = None) -> dict[str, str]:
        """Beat for the claims, and return the answer for each by the claim's name."""
        return {row.name: row.answer for row in self.heartbeat_rows(*claims, lease=lease, progress=progress)}

    def heartbeat_rows(self, *claims: Claim, lease: timedelta = LEASE, progress: str | None = None) -> list[Any]:
        """Beat for the claims, and return the rows of the answer."""
        return self._rows(
            "heartbeat",
            {
                "ids": [one.id for one in claims],
                "fences": [one.fence for one in claims],
                "names": [one.name for one in claims],
                "progress": [progress for _ in claims],
                "lease": lease,
            },
        )

    def leases(self, mark: datetime | None = None, ids: Sequence[int] = (), age: timedelta = timedelta()) -> Read:
        """Read the leases of known runs, and of those that began behind `mark`; without one, all."""
        rows = self._look(leases=True, mark=mark, ids=list(ids), age=age)
        return Read(rows[0].at, rows[0].mark, [Lease(*row[4:]) for row in rows if row.id is not None])

    def expired(self) -> list[Lease]:
        """Return the leases that have run out."""
        read = self.leases()
        return [lease for lease in read.leases if lease.locked_until <= read.at]

    def sweep(self, expired: Sequence[Any]) -> list[Any]:
        """Sweep what was seen expired, and return what was booked."""
        return self._rows(
            "sweep",
            {
                "ids": [row.id for row in expired],
                "fences": [row.fence for row in expired],
                "names": [row.name for row in expired],
                "expired_at": [row.locked_until for row in expired],
                "error": '{"message": "its lease ran out"}',
                "summary": "its lease ran out",
            },
        )

    def prune(self, age: timedelta = timedelta(days=7), *, mark: int = 0, span: int = 1000, most: int = 1000) -> Any:
        """Go a step along the jobs and delete what came to rest longer than `age` ago."""
        return self._rows("prune", {"age": age, "mark": mark, "span": span, "most": most})[0]

    def waiting(self, *queues: str, kinds: Sequence[str] = ("ok",), idle: int = 2) -> Any:
        """Return how many due jobs wait, counted up to `idle`, and when the next is due."""
        return self._look(queues=list(queues or ("default",)), kinds=list(kinds), idle=idle)[0]

    def end_sessions(self, application: str) -> int:
        """End the other sessions of that name, and return how many there were."""
        return int(self._rows("end_sessions", {"application": application})[0].still_there)

    def _look(self, **wanted: Any) -> list[Any]:
        return self._rows("look", {**ASKS_NOTHING, **wanted})

    def _rows(self, verb: str, arguments: dict[str, Any]) -> list[Any]:
        with self.conn.cursor(row_factory=namedtuple_row) as cursor:
            cursor.execute(statement(verb, self.schema), arguments)
            return cursor.fetchall()
