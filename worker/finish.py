"""Finish: the last step of a job's way.

Invariant: the outcome was committed under the fence, or the run is void. It is sent as often as it takes; the supervisor ends
this process when the lease can't be kept.
"""

from __future__ import annotations

import psycopg
import structlog

from fencepost.job import Ended, Outcome
from fencepost.jobs.claim import Claim
from fencepost.jobs.finish import finish, outcome_on_record
from fencepost.worker.errors import describe, summarize
from fencepost.worker.patience import Patience
from fencepost.worker.session import Session

log = structlog.get_logger()


def refused(outcome: Outcome, error: psycopg.Error) -> Outcome:
    """Return what is written in place of an outcome that the server has refused."""
    description = describe(error)
    return Outcome(Ended.failed, wait=outcome.wait, error=description, summary=summarize(description))


class Finishes:
    """A worker's finishes."""

    def __init__(self, schema: str, session: Session, patience: Patience) -> None:
        self._schema = schema
        self._session = session
        self._patience = patience
        self._log = log.bind()

    def write(self, claim: Claim, outcome: Outcome) -> None:
        """Write the outcome of the run under `claim`."""
        if outcome.ended is Ended.lost:
            self._log.warning("the lease was lost: this run is void")
            return
        try:
            held_to_the_end = self._sent(claim, outcome)
        except psycopg.Error as error:
            # The server has answered, with a no, and would again: what it refuses must not wedge the job.
            outcome = refused(outcome, error)
            held_to_the_end = self._sent(claim, outcome)
        self.tell(outcome, held_to_the_end=held_to_the_end)

    def tell(self, outcome: Outcome, *, held_to_the_end: bool) -> None:
        """Log how a run ended: with `outcome`, unless it no longer held its job."""
        if not held_to_the_end:
            self._log.warning("the lease was lost: this run is void", outcome=outcome.ended.value)
        elif outcome.ended in (Ended.done, Ended.snoozed):
            self._log.debug("run ended", outcome=outcome.ended.value)
        else:
            self._log.info("run ended", outcome=outcome.ended.value, error=outcome.summary)

    def is_done_on_record(self, claim: Claim) -> bool:
        """Whether the run's own transaction has finished the job: asked when the answer to its COMMIT was lost."""
        return self._patience.until_answered("finish", lambda: self._on_record(claim)) == Ended.done

    def _sent(self, claim: Claim, outcome: Outcome) -> bool:
        return self._patience.until_answered("finish", lambda: self._send(claim, outcome))

    def _send(self, claim: Claim, outcome: Outcome) -> bool:
        return finish(self._session.claims(), self._schema, claim.id, claim.fence, claim.name, outcome)

    def _on_record(self, claim: Claim) -> str | None:
        return outcome_on_record(self._session.claims(), self._schema, claim.id, claim.fence, claim.name)
