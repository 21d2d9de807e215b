"""A job's way: claim -> run -> finish, while there is work; else sleep until woken."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import cache

import structlog

from fencepost.board import Phase, Record, boottime
from fencepost.deadline import Deadline
from fencepost.handlers import Handler, handler_of
from fencepost.job import Ended, Outcome
from fencepost.jobs.claim import Claim
from fencepost.jobs.transaction import Held
from fencepost.logs import of_a_run
from fencepost.memory import RECYCLE_FROM, anonymous, megabytes
from fencepost.start import WorkerStart
from fencepost.worker.claim import Claims
from fencepost.worker.finish import Finishes
from fencepost.worker.leftovers import (
    Footprint,
    end_programs,
    footprint,
    left_behind,
    put_back_environment,
    reap_dead_programs,
    stop_timers,
)
from fencepost.worker.line import Line
from fencepost.worker.patience import Patience
from fencepost.worker.run import Run, job_of, missing_tenant, refused, wait_before_next
from fencepost.worker.session import Session
from fencepost.worker.stacks import Stacks
from fencepost.worker.stop import Stop
from fencepost.worker.transactions import RunTransactions

log = structlog.get_logger()

AFTER_LEFTOVERS = timedelta(seconds=1)
"""How long a job that has left something waits at least: what is left ends only with this process."""


class Worker:
    """One worker: one job at a time, on its own two connections."""

    def __init__(self, start: WorkerStart) -> None:
        self._settings = start.settings
        self._line = Line(start)
        self._session = Session(start.settings, start.name)
        self._patience = Patience(self._session, self._line)
        self._claims = Claims(start, self._session, self._line, self._patience)
        self._finishes = Finishes(start.settings.schema, self._session, self._patience)
        self._stop = Stop(start.board)
        self._stacks = Stacks(start.stacks)
        self._memory = start.memory
        self._deadline = _deadline()
        # As the last job has left this process: a worker in which one has changed anything runs no other.
        self._before: Footprint | None = None
        self._ran = 0
        self._leaving = False
        # Bound once: unbound, what is not to be logged costs as much as what is.
        self._log = log.bind()

    def work(self) -> None:
        """Claim and run until told to leave, or until this process is not what it was."""
        claim: Claim | None = None
        while claim is not None or not self._leaving:
            orders = self._line.orders
            if claim is None:
                if orders.drain or orders.leave:
                    break
                claim = None if orders.pause else self._claims.next()
            if claim is not None and self._claims.came_too_late():
                self._finishes.write(claim, Outcome(Ended.interrupted, summary="claimed, and given back before it started"))
                claim = None
            elif claim is not None:
                self._session.next_is(claim.kind)
                claim = self._run(claim)
            elif orders.pause or self._claims.searched:
                # Nothing is left to others while this one sleeps.
                self._session.clean_what_is_owed()
                # In this order: a wake-up is counted first, then those are woken whose record says idle. One that came
                # while we looked is seen in the count, a later one comes by the line.
                self._line.say(Record(Phase.idle))
                if self._line.orders == orders:
                    self._line.sleep(None if orders.pause else self._claims.until_next_look())
        # Nor while this process ends, which may wait for whoever reads what it prints.
        self._session.clean_what_is_owed()
        if not self._claims.unresolved:
            # Said only by one that holds nothing: of any other the supervisor asks the table.
            self._line.say(Record(Phase.leaving, claim=self._claims.number, claimed_at=boottime()))

    def _look_at_itself(self) -> None:
        """Leave after as many jobs, or as much memory, as the settings say."""
        self._ran += 1
        if 0 < self._settings.max_jobs_per_worker <= self._ran:
            self._leaving = True
            log.info("the worker is replaced: it has run FENCEPOST_MAX_JOBS_PER_WORKER jobs", jobs=self._ran)
        elif self._settings.max_rss and (taken := anonymous() - self._memory) > self._settings.max_rss * RECYCLE_FROM:
            self._leaving = True
            log.warning(
                "the worker is replaced: its memory comes near FENCEPOST_MAX_RSS",
                taken=megabytes(taken),
                max_rss=megabytes(self._settings.max_rss),
                jobs=self._ran,
            )

    def _run(self, claim: Claim) -> Claim | None:
        """Run what was claimed and finish it; return what was claimed next, where that could be done in one."""
        following = None
        handler = handler_of(claim.kind)
        limit = claim.max_runtime or handler.max_runtime or timedelta(seconds=self._settings.max_runtime)
        # The record counts from the claim. What that has waited, for locks that a finish in the same statement met, is not the
        # run's: it would be stopped before it began.
        waited = boottime() - self._claims.claimed_at
        running = Record(
            Phase.running,
            claim=self._claims.number,
            job_id=claim.id,
            fence=claim.fence,
            attempt=claim.attempt,
            max_attempts=claim.max_attempts,
            claimed_at=self._claims.claimed_at,
            max_runtime=waited + limit.total_seconds(),
            retry_in=self._retry_in(claim.attempt),
            kind=claim.kind,
            tenant=claim.tenant or "",
        )
        with of_a_run(job=claim.id, kind=claim.kind, attempt=claim.attempt, fence=claim.fence, tenant=claim.tenant):
            self._stop.install()
            self._stacks.install()
            before = self._before or footprint(self._line.descriptors)
            self._line.say(running)
            if self._deadline is not None:
                # Should the supervisor not come to it (protocol, rule 13): this process, if not what it has started.
                self._deadline.at(running.kills_itself_at(self._settings.kill_grace))
            self._log.debug("run started")
            if handler.wait is not None:
                # The handler's own code, so it is asked while the record says that its job runs.
                wait = wait_before_next(handler, self._settings, claim.attempt)
                running = running._replace(retry_in=wait.total_seconds())
                self._line.say(running)

            outcome, finished = self._outcome(claim, handler, running)
            timer = stop_timers()
            self._finishing(running)
            reap_dead_programs(before)
            put_back_environment(before)
            line = self._line.has_ended()
            self._before = footprint(self._line.descriptors)
            if left := left_behind(before, self._before, timer=timer, line=line):
                log.warning("the job left something behind: its worker is replaced", left=left)
                self._leaving = self._line.lost = True
                end_programs(before)
                outcome = replace(outcome, wait=max(outcome.wait, AFTER_LEFTOVERS))
            self._look_at_itself()
            if not finished:
                following = self._finish(claim, outcome)
            self._session.clean(claim.kind, done=outcome.ended is Ended.done)
        return following

    @cache  # noqa: B019  # there is one worker in a process
    def _retry_in(self, attempt: int) -> float:
        """Return the seconds until the next attempt, should the run die. Drawn once for each: this process dies only once."""
        return wait_before_next(None, self._settings, attempt).total_seconds()

    def _finish(self, claim: Claim, outcome: Outcome) -> Claim | None:
        """Write the outcome, and claim the next job in the same commit, unless this worker is to claim no more."""
        if self._leaving or outcome.ended is Ended.lost or not self._claims.may_follow():
            self._finishes.write(claim, outcome)
            return None
        try:
            held_to_the_end, following = self._claims.next_with_finish(claim, outcome)
        except Exception as error:  # noqa: BLE001  # as for a claim
            # The finish first, and by itself: it is answered the same if it was carried out, and until then the job is ours.
            self._finishes.write(claim, outcome)
            return self._claims.after_finish(error)
        self._finishes.tell(outcome, held_to_the_end=held_to_the_end)
        return following

    def _finishing(self, running: Record) -> None:
        """Say that no code of the job runs any more. How long its finish may take is for the supervisor to decide."""
        if self._deadline is not None:
            self._deadline.off()
        self._line.say(running._replace(phase=Phase.finishing))

    def _outcome(self, claim: Claim, handler: Handler, running: Record) -> tuple[Outcome, bool]:
        """Run the handler; return how that ended, and whether it is written already."""
        if (missing := missing_tenant(claim, handler, self._settings)) is not None:
            return refused(missing), False
        ends_at = running.claimed_at + running.max_runtime
        held = Held(claim.id, claim.fence, claim.name)
        transactions = RunTransactions(self._session, self._settings, held, claim.tenant, ends_at, self._session.transactions)
        run = Run(
            job_of(claim, self._settings.schema, transactions, self._line.report),
            handler,
            claim.payload,
            transactions,
            self._stop,
            self._settings,
            lambda: self._finishing(running),
        )
        outcome = run.call(running.claim)
        if not self._session.is_whole():
            # The job closed descriptors that were ours, and their numbers may be its own files' by now.
            self._session.forget()
            self._leaving = self._line.lost = True
        if not self._session.reusable():
            # A job goes back only after its statements are gone from the server, finished or not.
            log.warning("the job's session was lost, or in the middle of something: the next job has another")
            self._patience.until_answered("finish", self._session.end_old_sessions)
            if run.in_doubt and self._finishes.is_done_on_record(claim):
                return outcome, True
        return outcome, run.finished


def _deadline() -> Deadline | None:
    try:
        return Deadline()
    except OSError:
        return None  # said by the supervisor, whose own is of more use
