"""A job's way: claim -> run -> finish, while there is work; else sleep until woken.

Invariant: what the board says is written before what it speaks of is done. "Claiming, number n" stands there before the claim
is sent, "finishing" before the finish is: the supervisor kills by what it reads there.
"""

from __future__ import annotations

import os
import select
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

import psycopg
import structlog
import tenacity
from setproctitle import setproctitle
from structlog.contextvars import bound_contextvars

from fencepost.board import BUSY, Phase, Record, boottime
from fencepost.handlers import Handler, registered
from fencepost.job import Ended, Job, JobError, Outcome
from fencepost.jobs.claim import Claim, claim, held, lanes
from fencepost.jobs.finish import finish, outcome_on_record
from fencepost.jobs.transaction import Held
from fencepost.start import WorkerStart, claim_name
from fencepost.worker.errors import SUMMARY, clean, describe, summarize
from fencepost.worker.lanes import Lanes
from fencepost.worker.leftovers import end_programs, footprint, left_behind, reap_dead_programs, stop_timers
from fencepost.worker.run import Run, wait_before_next
from fencepost.worker.session import Session
from fencepost.worker.stop import Stop
from fencepost.worker.transactions import RunTransactions

log = structlog.get_logger()

RV = TypeVar("RV")

BETWEEN_CONNECTS = tenacity.wait_random(1, 3)
"""Seconds between two tries to reach the database, at random: a hundred workers must not come back in one instant."""

AFTER_LEFTOVERS = timedelta(seconds=1)

CONNECTION_IS_USELESS = ("25006", "57P01", "57P02", "57P03")
"""Read-only server, or one that is shutting down: sqlstates after which another connection may do better."""


class Worker:
    """One worker: one job at a time, on its own two connections."""

    def __init__(self, start: WorkerStart) -> None:
        self._start = start
        self._settings = start.settings
        self._board = start.board
        self._session = Session(start.settings, start.name)
        self._stop = Stop(start.board, start.slot)
        self._lanes = Lanes(start.settings.queues)
        self._handlers = registered()
        self._max_attempts = {
            kind: handler.max_attempts or start.settings.max_attempts for kind, handler in self._handlers.items()
        }
        self._claims = 0
        self._claimed_at = 0.0
        self._record = Record(Phase.booting)
        self._searched = False
        self._sent = False
        self._looked = True
        self._unresolved = False
        self._leaving = False
        self._trouble = ""

    def work(self) -> None:
        """Claim and run until told to drain, or until a job has left something behind."""
        while not self._leaving and not self._board.draining:
            wakes = self._board.wakes
            claimed = self._claim()
            if claimed is not None:
                self._run(claimed)
            elif self._searched:
                # In this order: a wake-up is counted first, then those are woken whose record says idle. One that came
                # while we looked is seen in the count, a later one comes by the line.
                self._say(Record(Phase.idle))
                if self._board.wakes == wakes:
                    self._sleep(self._next_look())
        if not self._unresolved:
            # Said only by one that holds nothing: of any other the supervisor asks the table.
            self._say(Record(Phase.leaving, claim=self._claims))

    # ---- claim

    def _claim(self) -> Claim | None:
        self._claims += 1
        name = claim_name(self._start.name, self._claims)
        # Every deadline of the run counts from here, before the claim is sent: the server's lease begins later than ours.
        self._claimed_at = boottime()
        self._say(Record(Phase.claiming, claim=self._claims, claimed_at=self._claimed_at))
        self._searched = self._sent = False
        try:
            claimed = self._search(name)
        except Exception as error:  # noqa: BLE001  # an answer that can't be read is a lost one
            self._note_trouble("claim", error)
            claimed = self._after_lost_answer(error)
        else:
            self._searched = True
            self._trouble = ""
        if claimed is None:
            return None
        # Looked at once more before it starts: an answer may come after its lease, or after the order to drain.
        if self._board.draining or boottime() >= self._claimed_at + self._settings.holds_for:
            self._finish(claimed, Outcome(Ended.interrupted, summary="claimed, and given back before it started"))
            return None
        return claimed

    def _search(self, name: str) -> Claim | None:
        """Look behind the keys; else, or if it is time, at the whole."""
        conn = self._session.claims()
        self._looked = True
        if not self._lanes.may_look_at_all(boottime(), busy=True):
            found = self._take(conn, name)
            if found is not None:
                return found
            if not self._lanes.may_look_at_all(boottime(), busy=False):
                self._looked = False
                return None
        began = boottime()
        self._lanes.look_at_all(lanes(conn, self._settings.schema, self._settings.queues))
        found = self._take(conn, name)
        self._lanes.looked_at_all(boottime(), boottime() - began)
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
            lease=timedelta(seconds=self._settings.lease),
        )
        if found is not None:
            self._lanes.took(found)
        return found

    def _next_look(self) -> float | None:
        """Return how long to sleep: until woken, or until the whole may be looked at, if it should have been and was not."""
        return None if self._looked else self._lanes.may_look_in(boottime())

    def _after_lost_answer(self, error: Exception) -> Claim | None:
        """Find out what became of a claim: end the session that it was sent on, then ask by name, and adopt it."""
        if isinstance(error, psycopg.Error) and not _connection_is_useless(error):
            # The server has answered, with a no: nothing was claimed.
            self._pause()
            return None
        if not self._sent:
            self._session.drop_claims()
            self._pause()
            return None
        while True:
            self._session.drop_claims()
            self._pause()
            if self._board.draining:
                self._leaving = self._unresolved = True
                return None
            # A sign of life: the supervisor ends a worker whose claim is not answered.
            self._say(replace(self._record, claimed_at=boottime()))
            try:
                self._session.end_old_sessions()
                mine = held(self._session.claims(), self._settings.schema, self._start.name)
            except psycopg.Error as again:
                self._note_trouble("claim", again)
            else:
                self._trouble = ""
                return mine[0] if mine else None

    # ---- run

    def _run(self, claimed: Claim) -> None:
        handler = self._handlers[claimed.kind]
        limit = claimed.max_runtime or handler.max_runtime or timedelta(seconds=self._settings.max_runtime)
        record = Record(
            Phase.running,
            claim=self._claims,
            job_id=claimed.id,
            fence=claimed.fence,
            attempt=claimed.attempt,
            max_attempts=claimed.max_attempts,
            claimed_at=self._claimed_at,
            max_runtime=limit.total_seconds(),
            kind=claimed.kind,
            tenant=claimed.tenant or "",
        )
        with bound_contextvars(
            job=claimed.id, kind=claimed.kind, attempt=claimed.attempt, fence=claimed.fence, tenant=claimed.tenant
        ):
            own = self._own_descriptors()
            self._stop.install()
            before = footprint(own)
            self._say(record)
            log.debug("run started")
            # The handler's own code, so it is asked while the record says that its job runs.
            record = replace(record, retry_in=wait_before_next(handler, self._settings, claimed.attempt).total_seconds())
            self._say(record)
            outcome, finished = self._outcome(claimed, handler, record, self._claimed_at + limit.total_seconds())
            timer = stop_timers()
            self._say(replace(record, phase=Phase.finishing))
            reap_dead_programs(before)
            left = left_behind(before, footprint(own), timer=timer)
            if left:
                log.warning("the job left something behind: its worker is replaced", left=left)
                self._leaving = True
                end_programs(before)
                # Threads end only with this process: the job must not be claimed again before that.
                outcome = replace(outcome, wait=max(outcome.wait, AFTER_LEFTOVERS))
            if not finished:
                self._finish(claimed, outcome)
            self._session.clean()

    def _outcome(self, claimed: Claim, handler: Handler, record: Record, ends_at: float) -> tuple[Outcome, bool]:
        """Return how the run ended, and whether that is written already."""
        if claimed.tenant is None and not handler.tenantless and self._settings.tenant_setting:
            description = describe(JobError(f"a job of kind {claimed.kind!r} needs a tenant, and this one has none"))
            return Outcome(Ended.failed, final=True, error=description, summary=summarize(description)), False
        transactions = RunTransactions(
            self._session,
            self._settings,
            Held(claimed.id, claimed.fence, claimed.name),
            claimed.tenant,
            ends_at,
        )
        run = Run(
            Job(
                id=claimed.id,
                kind=claimed.kind,
                queue=claimed.queue,
                attempt=claimed.attempt,
                max_attempts=claimed.max_attempts,
                tenant=claimed.tenant,
                idempotency_key=uuid.uuid5(
                    uuid.NAMESPACE_OID, f"{self._settings.schema}/{claimed.id}/{claimed.created_at.timestamp()}"
                ),
                _transactions=transactions,
                _report=self._report,
            ),
            handler,
            claimed.payload,
            transactions,
            self._stop,
            self._settings,
            lambda: self._say(replace(record, phase=Phase.finishing)),
        )
        outcome = run.call(self._claims)
        if not self._session.is_whole():
            # The job closed descriptors that were ours, and their numbers may be its own files' by now.
            self._session.forget()
            self._leaving = True
        if not self._session.reusable():
            # A job goes back only after its statements are gone from the server, finished or not.
            self._patiently("finish", self._session.end_old_sessions)
            if run.in_doubt and self._patiently("finish", lambda: self._on_record(claimed)) == Ended.done:
                return outcome, True
        return outcome, run.finished

    def _on_record(self, claimed: Claim) -> str | None:
        return outcome_on_record(self._session.claims(), self._settings.schema, claimed.id, claimed.fence, claimed.name)

    # ---- finish

    def _finish(self, claimed: Claim, outcome: Outcome) -> None:
        """Write the outcome, as often as it takes: the supervisor ends this process when the lease can't be kept."""
        if outcome.ended is Ended.lost:
            log.warning("the lease was lost: this run is void")
            return
        try:
            held_to_the_end = self._patiently("finish", lambda: self._finish_once(claimed, outcome))
        except psycopg.Error as error:
            # The server has answered, with a no, and would again: what it refuses must not wedge the job.
            description = describe(error)
            outcome = Outcome(Ended.failed, wait=outcome.wait, error=description, summary=summarize(description))
            held_to_the_end = self._patiently("finish", lambda: self._finish_once(claimed, outcome))
        if not held_to_the_end:
            log.warning("the lease was lost: this run is void", outcome=outcome.ended.value)
        elif outcome.ended in (Ended.done, Ended.snoozed):
            log.debug("run ended", outcome=outcome.ended.value)
        else:
            log.info("run ended", outcome=outcome.ended.value, error=outcome.summary)

    def _finish_once(self, claimed: Claim, outcome: Outcome) -> bool:
        return finish(self._session.claims(), self._settings.schema, claimed.id, claimed.fence, claimed.name, outcome)

    def _patiently(self, verb: str, act: Callable[[], RV]) -> RV:
        """Do `act` on the claims' connection until the database has answered. Raises what it refuses for what it was given."""
        while True:
            try:
                answer = act()
            except (psycopg.DataError, psycopg.IntegrityError):
                raise
            except psycopg.Error as error:
                self._note_trouble(verb, error)
                self._session.drop_claims()
                self._pause()
            else:
                self._trouble = ""
                return answer

    # ---- what connects the worker to its supervisor

    def _say(self, record: Record) -> None:
        self._record = record
        self._board.write(self._start.slot, record)
        setproctitle(f"fencepost: worker {self._start.slot} {_title(record)}")

    def _report(self, done: float, total: float | None) -> None:
        self._record = replace(self._record, progress=(float(done), float("nan" if total is None else total)))
        self._board.write(self._start.slot, self._record)

    def _sleep(self, seconds: float | None) -> None:
        """Sleep until woken, or for `seconds`. Where the line ends, the supervisor is gone, and so are we."""
        if self._leaving:
            # A job may have closed the line, and something else may have its number. The kernel ends us with the supervisor.
            time.sleep(seconds or 0)
            return
        line = select.poll()
        line.register(self._start.line, select.POLLIN)
        if line.poll(None if seconds is None else seconds * 1000):
            try:
                heard = self._start.line.recv(4096)
            except OSError:
                heard = b""
            if not heard:
                os._exit(0)

    def _pause(self) -> None:
        """Wait before the database is asked again."""
        self._sleep(BETWEEN_CONNECTS(tenacity.RetryCallState(tenacity.Retrying(), None, (), {})))

    def _note_trouble(self, verb: str, error: Exception) -> None:
        """Log trouble with the database once, until it is another."""
        text = clean(str(error).strip(), SUMMARY)
        if text != self._trouble:
            self._trouble = text
            log.warning("the database did not answer as it should; trying again", verb=verb, error=text)

    def _own_descriptors(self) -> tuple[int, ...]:
        return (self._start.line.fileno(), self._start.note, self._start.stacks)


def _connection_is_useless(error: psycopg.Error) -> bool:
    return isinstance(error, psycopg.OperationalError) or error.sqlstate in CONNECTION_IS_USELESS


def _title(record: Record) -> str:
    if record.phase in BUSY:
        return f"{record.kind} #{record.job_id} (attempt {record.attempt} of {record.max_attempts})"
    return record.phase.name
