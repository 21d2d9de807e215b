"""The design's state diagram, walked at random: the table and a model of it never disagree."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fencepost import RetryRefused, cancel, retry
from fencepost.job import Ended
from fencepost.jobs.claim import Claim
from support.databases import Database
from support.jobs import Jobs
from support.verbs import Verbs

HANDLERS_BUDGET = 2
AT_ONCE = timedelta(microseconds=1)
LIVING = ("queued", "running")


@dataclass(frozen=True)
class Model:
    """What a job's row must say."""

    status: str = "queued"
    attempts: int = 0
    max_attempts: int | None = None
    interruptions: int = 0
    fence: int = 0
    holder: str | None = None
    unique_key: str | None = None
    cancel_requested: bool = False
    expired: bool = False
    outcomes: tuple[tuple[int, str], ...] = ()

    def after(self, outcome: str, *, final: bool) -> Model:
        """Return the job after its run has ended so."""
        assert self.max_attempts is not None
        given_back = outcome == "snoozed" or (outcome == "interrupted" and self.interruptions < 20)
        if outcome == "done":
            status = "done"
        elif outcome == "cancelled" or self.cancel_requested:
            status = "cancelled"
        elif given_back:
            status = "queued"
        elif final or self.attempts == self.max_attempts:
            status = "dead"
        else:
            status = "queued"
        return replace(
            self,
            status=status,
            attempts=self.attempts - given_back,
            interruptions=self.interruptions + (outcome == "interrupted"),
            holder=None,
            expired=False,
            outcomes=(*self.outcomes, (self.fence, outcome)),
        )


class Table(RuleBasedStateMachine):
    """The verbs, in any order, with claims that are current, stale or invented."""

    database: Database
    verbs: Verbs

    claims = Bundle("claims")

    @initialize()
    def empty(self) -> None:
        self.database.execute("delete from fencepost.job_runs; delete from fencepost.jobs")
        # What is drawn depends on the ids, and must be the same when a walk is repeated.
        self.database.execute("select setval(pg_get_serial_sequence('fencepost.jobs', 'id'), 1, false)")
        self.jobs = Jobs(self.database)
        self.model: dict[int, Model] = {}

    # ---- into the queue

    @rule(max_attempts=st.sampled_from([None, 1, 3]), unique_key=st.sampled_from([None, None, "k"]))
    def enqueue(self, max_attempts: int | None, unique_key: str | None) -> None:
        taken = [job for job, it in self.model.items() if unique_key and it.unique_key == unique_key and it.status in LIVING]
        job = self.jobs.enqueue("ok", max_attempts=max_attempts, unique_key=unique_key)
        if taken:
            assert [job] == taken
        else:
            assert job not in self.model
            self.model[job] = Model(max_attempts=max_attempts, unique_key=unique_key)

    # ---- out of it

    @rule(target=claims, expired=st.booleans())
    def claim(self, expired: bool) -> Any:  # noqa: FBT001  # a rule's argument
        queued = sorted(job for job, it in self.model.items() if it.status == "queued")
        claimed = self.verbs.claim(kinds={"ok": HANDLERS_BUDGET}, lease=AT_ONCE if expired else timedelta(hours=1))
        if not queued:
            assert claimed is None
            return multiple()
        assert claimed is not None
        assert claimed.id in queued
        before = self.model[claimed.id]
        after = replace(
            before,
            status="running",
            attempts=before.attempts + 1,
            max_attempts=before.max_attempts or HANDLERS_BUDGET,
            fence=before.fence + 1,
            holder=claimed.name,
            expired=expired,
        )
        assert (claimed.attempt, claimed.max_attempts, claimed.fence) == (
            after.attempts,
            after.max_attempts,
            after.fence,
        )
        self.model[claimed.id] = after
        return claimed

    def holds(self, claimed: Claim) -> bool:
        it = self.model[claimed.id]
        return it.status == "running" and (it.fence, it.holder) == (claimed.fence, claimed.name)

    @rule(claimed=claims, outcome=st.sampled_from(list(Ended)), final=st.booleans())
    def finish(self, claimed: Claim, outcome: Ended, final: bool) -> None:  # noqa: FBT001
        it = self.model[claimed.id]
        answer = self.verbs.finish(claimed, outcome, final=final)
        if self.holds(claimed):
            assert answer is True
            self.model[claimed.id] = it.after(outcome.value, final=final)
        else:
            assert answer is ((claimed.fence, outcome.value) in it.outcomes)

    @rule(claimed=claims, shift=st.sampled_from([-1, 1]))
    def finish_under_another_fence(self, claimed: Claim, shift: int) -> None:
        assert self.verbs.finish(claimed, "done", fence=claimed.fence + shift, name="nobody:1") is False

    @rule(claimed=consumes(claims))
    def forget(self, claimed: Claim) -> None:
        """The worker vanishes; only a sweep can help now."""

    # ---- while it runs

    @rule(first=claims, second=claims)
    def heartbeat(self, first: Claim, second: Claim) -> None:
        beats = {one.name: one for one in (first, second)}
        answers = self.verbs.heartbeat(*beats.values(), lease=timedelta(hours=1))
        assert answers == {name: "renewed" if self.holds(one) else "lost" for name, one in beats.items()}
        for one in beats.values():
            if self.holds(one):
                self.model[one.id] = replace(self.model[one.id], expired=False)

    @rule(claimed=claims)
    def hold(self, claimed: Claim) -> None:
        with self.verbs.conn.transaction(force_rollback=True):
            self.verbs.conn.execute("select set_config('fencepost_job.run', %s, true)", [claimed.name])
            sqlstate = None
            try:
                with self.verbs.conn.transaction():
                    self.verbs.hold(claimed)
            except psycopg.Error as error:
                sqlstate = error.sqlstate
            assert sqlstate == (None if self.holds(claimed) else "FP001")

    @rule()
    def sweep(self) -> None:
        expired = self.verbs.expired()
        assert {row.id for row in expired} == {job for job, it in self.model.items() if it.expired}
        assert {row.id for row in self.verbs.sweep(expired)} == {row.id for row in expired}
        for row in expired:
            self.model[row.id] = self.model[row.id].after("lost", final=False)

    # ---- by hand

    def any_job(self, data: st.DataObject) -> tuple[int, Model]:
        """Return a job in any of the states that there are, rare ones as often as others."""
        status = data.draw(st.sampled_from(sorted({it.status for it in self.model.values()})))
        job = data.draw(st.sampled_from(sorted(job for job, it in self.model.items() if it.status == status)))
        return job, self.model[job]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job, it = self.any_job(data)
        if it.status in LIVING:
            status = "cancelled" if it.status == "queued" else "running"
            self.model[job] = replace(it, status=status, cancel_requested=True)
        assert cancel(self.database.owner, job) == self.model[job].status

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        job, it = self.any_job(data)
        twin = any(
            it.unique_key is not None and other.unique_key == it.unique_key and other.status in LIVING
            for one, other in self.model.items()
            if one != job
        )
        if it.status in ("running", "done") or (it.status in ("dead", "cancelled") and twin):
            with pytest.raises(RetryRefused):
                retry(self.database.owner, job)
            return
        retry(self.database.owner, job)
        if it.status != "queued":
            self.model[job] = replace(it, status="queued", attempts=0, interruptions=0, cancel_requested=False)

    # ---- what must hold

    @invariant()
    def the_table_is_as_the_model_says(self) -> None:
        if not hasattr(self, "model"):
            return
        rows = self.database.execute(
            """select j.*, array(
                   select r.fence || ' ' || r.outcome from fencepost.job_runs r where r.job_id = j.id order by r.fence
               ) as outcomes
               from fencepost.jobs j"""
        )
        seen = {row.id: _as_model(row) for row in rows}
        assert seen == {job: replace(it, expired=False) for job, it in self.model.items()}


def _as_model(row: Any) -> Model:
    return Model(
        status=row.status,
        attempts=row.attempts,
        max_attempts=row.max_attempts,
        interruptions=row.interruptions,
        fence=row.fence,
        holder=row.locked_by,
        unique_key=row.unique_key,
        cancel_requested=row.cancel_requested_at is not None,
        outcomes=tuple((int(fence), outcome) for fence, outcome in map(str.split, row.outcomes)),
    )


@pytest.mark.timeout(300)
def test_the_verbs_keep_the_state_diagram(database: Database, verbs: Verbs) -> None:
    """Any order of claims, finishes, beats, sweeps, cancels and retries, with stale and invented fences among them."""

    class OnThisDatabase(Table):
        pass

    OnThisDatabase.database = database
    OnThisDatabase.verbs = verbs
    run_state_machine_as_test(
        OnThisDatabase,
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.explicit, Phase.generate, Phase.shrink),
        ),
    )
