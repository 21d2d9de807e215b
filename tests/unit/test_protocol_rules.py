"""Rules of the protocol that the processes keep: each accident happens twice, with the rule and with the rule taken out."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.board import Orders, Phase, Record, boottime
from fencepost.jobs.heartbeat import Answer
from fencepost.settings import CLOCK_DRIFT, Settings, read
from fencepost.supervisor import heartbeat, watch
from fencepost.supervisor import kill as killing
from fencepost.supervisor.kill import kill_run
from fencepost.supervisor.state import Child, Kill, Slot, State
from fencepost.supervisor.watch import Look, Verdict, judge
from fencepost.worker.claim import Claims
from fencepost.worker.loop import Worker
from support.waiting import wait_until

with_and_without = pytest.mark.parametrize("rule", [True, False], ids=["with the rule", "without"])


@with_and_without
def test_rule_7_a_claim_that_is_answered_late_is_not_started(monkeypatch: pytest.MonkeyPatch, *, rule: bool) -> None:
    """Answered when its lease was all but over: a run that begins then is another's before it knows."""
    started: list[Any] = []
    written: list[str] = []
    claims = Claims.__new__(Claims)
    claims._line, claims._settings = SimpleNamespace(orders=Orders()), read()  # type: ignore[assignment]
    claims.number, claims.unresolved = 1, False

    def answered_late() -> SimpleNamespace:
        worker._leaving = True
        claims.claimed_at = boottime() - claims._settings.holds_for
        return SimpleNamespace(id=1, kind="ok")

    worker = Worker.__new__(Worker)
    worker._leaving = False
    monkeypatch.setattr(claims, "next", answered_late)
    monkeypatch.setattr(worker, "_line", SimpleNamespace(orders=Orders(), say=lambda _: None), raising=False)
    monkeypatch.setattr(worker, "_claims", claims, raising=False)
    finishes = SimpleNamespace(write=lambda _, outcome: written.append(outcome.ended.value))
    monkeypatch.setattr(worker, "_finishes", finishes, raising=False)
    monkeypatch.setattr(worker, "_run", started.append)
    session = SimpleNamespace(next_is=lambda _: None, clean_what_is_owed=lambda: None)
    monkeypatch.setattr(worker, "_session", session, raising=False)
    monkeypatch.setattr(worker, "_look_at_itself", lambda: None)
    if not rule:
        # As if all counted from the answer.
        monkeypatch.setattr(claims, "came_too_late", lambda: False)
    worker.work()
    assert (len(started), written) == ((0, ["interrupted"]) if rule else (1, []))


@with_and_without
@pytest.mark.parametrize("kept", [False, True], ids=["claimed", "renewed since"])
def test_rule_10_a_run_is_killed_one_margin_before_its_lease_ends(
    monkeypatch: pytest.MonkeyPatch, *, kept: bool, rule: bool
) -> None:
    """Killing takes time, and clocks differ: begun at the lease's end, it ends behind it."""
    settings = read()
    margin = settings.margin
    if not rule:
        monkeypatch.setattr(Settings, "margin", 0.0)
    record = Record(Phase.running, claim=1, claimed_at=1000.0, max_runtime=3600.0)
    sent_at = 1030.0 if kept else 1000.0

    def verdict(after: int) -> Verdict:
        now = sent_at + after / 100
        return judge(Look(now, forked_at=0.0, ready=True, record=record, kept_at=sent_at if kept else 0.0), settings)

    killed_after = next(after for after in range(10_000) if verdict(after) is Verdict.lease_is_over) / 100
    dead_after = (killed_after + margin) * (1 + CLOCK_DRIFT)
    assert (dead_after <= settings.lease + 0.02) is rule
    # Not long before either: that would cost runs which could have been kept.
    assert killed_after >= settings.lease - margin - 1


@with_and_without
def test_rule_15_a_kill_does_not_hit_the_next_run(worker: Child, monkeypatch: pytest.MonkeyPatch, *, rule: bool) -> None:
    """The run that was meant has ended as the kill was decided on, and its worker has claimed again."""
    if not rule:
        # What it was when that was decided.
        stale = Record(Phase.running, claim=1, job_id=7, claimed_at=boottime(), max_runtime=60)
        monkeypatch.setattr(killing.Child, "record", lambda _self: stale)
    asyncio.run(kill_run(worker, Kill("lease", 1)))
    ended = os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT | (os.WNOHANG if rule else 0))
    assert (ended is None) is rule
    if ended is None:
        assert killing.status(worker.pid) not in killing.STANDS_STILL, "it was stopped, and not let go"
    else:
        assert ended.si_status == signal.SIGKILL


async def wakes_up(worker: Child, gap: float, answer: str, between: Callable[[], None] = lambda: None) -> None:
    """Let a supervisor look at a worker past its deadline, having been away for `gap`, and then hear from the database."""
    nothing: Any = None
    state = State(read(), "s1", [Slot(1, worker)], duty=nothing, bookings_link=nothing, beats=nothing)
    past = boottime() - state.settings.holds_for - 1
    worker.board.write(Record(Phase.running, claim=2, job_id=8, claimed_at=past, max_runtime=3600))
    watch.watch(state, gap)
    between()
    heartbeat._take(state, worker, 2, Answer(answer, cancel_requested=False), boottime())  # type: ignore[arg-type]
    await asyncio.gather(*state.tasks)


@with_and_without
@pytest.mark.parametrize("answer", ["renewed", "lost"])
def test_rule_12_a_run_that_was_frozen_with_its_supervisor_is_asked_about(worker: Child, answer: str, *, rule: bool) -> None:
    """Nobody has taken it: killed by the clock alone, it would be lost for nothing. One that another has is killed."""
    # As if the supervisor did not know that it was away.
    asyncio.run(wakes_up(worker, 10.0 if rule else 0.0, answer))
    killed = answer == "lost" or not rule
    ended = os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT | (0 if killed else os.WNOHANG))
    assert (ended is not None) is killed
    if not killed:
        wait_until(lambda: killing.status(worker.pid) not in killing.STANDS_STILL, what="the run that goes on")


@with_and_without
def test_rule_12_until_the_database_has_told_it_stands_still(
    worker: Child, monkeypatch: pytest.MonkeyPatch, *, rule: bool
) -> None:
    """Another may have its job: what it does meanwhile outside of the database no fence keeps out."""
    if not rule:
        monkeypatch.setattr(watch, "send_group", lambda *_: None)

    def look() -> None:
        if rule:
            wait_until(lambda: killing.status(worker.pid) in killing.STANDS_STILL, what="the run that stands still")
        else:
            assert killing.status(worker.pid) not in killing.STANDS_STILL

    asyncio.run(wakes_up(worker, 10.0, "lost", look))
