"""Claim: the first step of a job's way.

Invariant: what was claimed is run, given back, or left to the supervisor to find. A claim whose answer was lost may have been
carried out: its session is ended first, then the table is asked by the claim's name (protocol, rule 8).
"""

from __future__ import annotations

from datetime import timedelta

import psycopg

from fencepost.board import Phase, Record, boottime
from fencepost.handlers import registered
from fencepost.job import Outcome
from fencepost.jobs.claim import Claim, claim, finish_and_claim, held, lanes
from fencepost.settings import Settings
from fencepost.start import WorkerStart, claim_name
from fencepost.worker.lanes import Lanes
from fencepost.worker.line import Line
from fencepost.worker.patience import Patience, is_an_answer
from fencepost.worker.session import Session


def budgets(settings: Settings) -> dict[str, int]:
    """Return the kinds that can be claimed here, each with the attempts that its jobs have unless they say otherwise."""
    return {kind: handler.max_attempts or settings.max_attempts for kind, handler in registered().items()}


class Claims:
    """A worker's claims, one after the other.

    `number` counts them, `claimed_at` is from when all deadlines of the last one count. `searched` says whether it could look
    for work, `unresolved` whether it was left open what became of it.
    """

    def __init__(self, start: WorkerStart, session: Session, line: Line, patience: Patience) -> None:
        self._start = start
        self._settings = start.settings
        self._session = session
        self._line = line
        self._patience = patience
        self._lanes = Lanes(start.settings.queues)
        self._max_attempts = budgets(start.settings)
        self._lease = timedelta(seconds=start.settings.lease)
        self.number = 0
        self.claimed_at = 0.0
        self.searched = False
        self.unresolved = False
        self._sent = False
        self._looked = True
        self._slept = False

    def next(self) -> Claim | None:
        """Claim one job, if there is one."""
        self._begin()
        self._line.say(Record(Phase.claiming, claim=self.number, claimed_at=self.claimed_at))
        try:
            found = self._search(claim_name(self._start.name, self.number))
        except Exception as error:  # noqa: BLE001  # an answer that can't be read is a lost one
            self._patience.note("claim", error)
            return self._after(error)
        self.searched = True
        self._patience.answered()
        return found

    def may_follow(self) -> bool:
        """Whether the next claim may travel with a finish: there are lanes, and the whole need not be looked at first."""
        orders = self._line.orders
        return (
            not (orders.drain or orders.leave or orders.pause)
            and self._lanes.are_known
            and not self._lanes.may_look_at_all(boottime(), busy=True)
        )

    def next_with_finish(self, run: Claim, outcome: Outcome) -> tuple[bool, Claim | None]:
        """Write the outcome of `run` and claim the next job, in one commit; return whether the run held its job to the end.

        What is said meanwhile is that the run is finishing: its heartbeat goes on, and a claim that nobody comes to know of is
        found under this worker's name. Raises psycopg.Error: then neither is known to be done.
        """
        self._begin()
        try:
            held_to_the_end, found = finish_and_claim(
                self._session.claims(),
                self._settings.schema,
                run,
                outcome,
                name=claim_name(self._start.name, self.number),
                lanes=self._lanes.in_order(),
                max_attempts=self._max_attempts,
                lease=self._lease,
            )
        except Exception as error:
            if not is_an_answer(error):
                # What is sent on it again is only told that it is broken, and no longer why.
                self._patience.note("finish", error)
                self._session.drop_claims()
                self._patience.pause()
            raise
        if found is not None:
            self._lanes.took(found)
        self._patience.answered()
        return held_to_the_end, found

    def after_finish(self, error: Exception) -> Claim | None:
        """Find out what became of the claim that travelled with a finish, once that finish has been sent again by itself."""
        if is_an_answer(error):
            return None
        self._line.say(Record(Phase.claiming, claim=self.number, claimed_at=boottime()))
        self._sent = True
        return self._after(error)

    def _begin(self) -> None:
        self.number += 1
        # Before the claim is sent: the server's lease begins later than ours.
        self.claimed_at = boottime()
        self.searched = self._sent = False

    def came_too_late(self) -> bool:
        """Whether what was claimed must not be started any more: its lease is all but over, or the order to drain came."""
        return self._line.orders.drain or boottime() >= self.claimed_at + self._settings.holds_for

    def until_next_look(self) -> float | None:
        """Return how long to sleep: until woken, or until the whole may be looked at, if it should have been and was not."""
        return None if self._looked else self._lanes.may_look_in(boottime())

    def _search(self, name: str) -> Claim | None:
        """Look behind the keys; else, or if it is time, at the whole.

        One that has slept looks behind the keys first, however long ago the whole was looked at: what woke it is most likely
        there, and starts sooner by as long as the other look takes. That comes with the next claim.
        """
        conn = self._session.claims()
        self._looked = True
        slept, self._slept = self._slept, False
        if slept or not self._lanes.may_look_at_all(boottime(), busy=True):
            found = self._take(conn, name)
            if found is not None:
                return found
            if not self._lanes.may_look_at_all(boottime(), busy=False):
                self._looked = False
                self._slept = True
                return None
        began = boottime()
        self._lanes.look_at_all(lanes(conn, self._settings.schema, self._settings.queues))
        found = self._take(conn, name)
        self._lanes.looked_at_all(boottime(), boottime() - began)
        self._slept = found is None
        return found

    def _take(self, conn: psycopg.Connection[tuple[object, ...]], name: str) -> Claim | None:
        in_order = self._lanes.in_order()
        if not in_order:
            return None
        self._sent = True
        found = claim(
            conn,
            self._settings.schema,
            name=name,
            lanes=in_order,
            max_attempts=self._max_attempts,
            lease=self._lease,
        )
        if found is not None:
            self._lanes.took(found)
        return found

    def _after(self, error: Exception) -> Claim | None:
        """Wait, and find out what became of the claim, if that is open. What was claimed is adopted."""
        # Nothing is left to others while this one waits.
        self._session.clean_what_is_owed()
        if is_an_answer(error) or not self._sent:
            # After a no, too: it may be to what the session keeps prepared, which a migration has changed or a proxy dropped.
            self._session.drop_claims()
            self._patience.pause()
            return None
        while True:
            self._session.drop_claims()
            self._patience.pause()
            if self._line.orders.drain or self._line.orders.leave:
                self.unresolved = True
                return None
            self._line.say_still_claiming()
            try:
                self._session.end_old_sessions()
                mine = held(self._session.claims(), self._settings.schema, self._start.name)
                # By its name: a server that knows less than the one before may still show one of ours that is long over.
                name = claim_name(self._start.name, self.number)
                adopted = next((claim for claim in mine if claim.name == name), None)
            except psycopg.Error as again:
                self._patience.note("claim", again)
            else:
                self._patience.answered()
                return adopted
