"""A supervisor that was away holds what is past its lease until the database has told; nobody stands still for ever."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from fencepost.board import Phase, Record, boottime
from fencepost.jobs.heartbeat import Answer
from fencepost.settings import read
from fencepost.supervisor import heartbeat, watch
from fencepost.supervisor import kill as killing
from fencepost.supervisor.state import Child, Slot, State
from support.waiting import wait_until


async def is_held_too_late(worker: Child, ends: Callable[[], None], after: Callable[[State], None]) -> None:
    """Hold a run that `ends` between the supervisor's look at it and the signal that stops it; then do what comes `after`."""
    nothing: Any = None
    state = State(read(), "s1", [Slot(1, worker)], duty=nothing, bookings_link=nothing, beats=nothing)
    past = boottime() - state.settings.holds_for - 1
    worker.board.write(Record(Phase.running, claim=2, job_id=8, claimed_at=past, max_runtime=3600))
    watch.watch(state, 10.0)
    ends()
    wait_until(lambda: killing.status(worker.pid) in killing.STANDS_STILL, what="the worker that stands still")
    after(state)
    await asyncio.gather(*state.tasks)


AFTER_ITS_RUN = {
    "sleeps": Record(Phase.idle, claim=2),
    "claims": Record(Phase.claiming, claim=3),
    "runs the next": Record(Phase.running, claim=3, job_id=9, max_runtime=60),
    "leaves": Record(Phase.leaving, claim=2),
}


@pytest.mark.parametrize("does", AFTER_ITS_RUN)
def test_a_worker_whose_run_ended_as_it_was_to_be_held_goes_on(worker: Child, does: str) -> None:
    """No heartbeat asks about that run any more: it would stand still for ever, and its slot with it."""
    asyncio.run(
        is_held_too_late(
            worker,
            ends=lambda: worker.board.write(AFTER_ITS_RUN[does]._replace(claimed_at=boottime())),
            after=lambda state: watch.watch(state, 0.0),
        )
    )
    wait_until(lambda: killing.status(worker.pid) not in killing.STANDS_STILL, what="the worker that goes on")
    assert worker.held is None
    assert worker.kill is None


def test_a_run_that_was_held_as_it_finished_goes_on_when_it_is_told_lost(worker: Child) -> None:
    """Its row is most likely done; if not, its finish is refused. Nothing of the job's code runs any more."""
    asyncio.run(
        is_held_too_late(
            worker,
            ends=lambda: worker.board.write(Record(Phase.finishing, claim=2, job_id=8, claimed_at=boottime(), max_runtime=60)),
            after=lambda state: heartbeat._take(state, worker, 2, Answer("lost", cancel_requested=False), boottime()),
        )
    )
    wait_until(lambda: killing.status(worker.pid) not in killing.STANDS_STILL, what="the worker that goes on")
    assert worker.kill is None


def test_a_worker_that_was_held_as_it_wrote_its_record_is_killed(worker: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a record stays half a one while it stands still, and no heartbeat asks about it."""
    monkeypatch.setattr(watch, "UNREADABLE_FOR", 0.0)

    def looks_twice(state: State) -> None:
        for _ in range(2):
            watch.watch(state, 0.0)

    asyncio.run(is_held_too_late(worker, ends=lambda: worker.board._memory.__setitem__(20, 0xFF), after=looks_twice))
    assert os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT).si_status == signal.SIGKILL


@pytest.mark.parametrize("sent", ["before", "since, for the claim before"])
def test_only_an_answer_of_today_about_the_run_itself_lets_it_go_on(worker: Child, sent: str) -> None:
    """Rule 12: an answer may have waited to be read for as long as the supervisor was away, and the lease be over since."""

    def is_answered(state: State) -> None:
        claim, sent_at = (2, boottime() - state.settings.holds_for - 0.5) if sent == "before" else (1, boottime())
        heartbeat._take(state, worker, claim, Answer("renewed", cancel_requested=False), sent_at)
        heartbeat._take(state, worker, 1, Answer("lost", cancel_requested=False), boottime())
        assert killing.status(worker.pid) in killing.STANDS_STILL
        heartbeat._take(state, worker, 2, Answer("renewed", cancel_requested=False), boottime())

    asyncio.run(is_held_too_late(worker, ends=lambda: None, after=is_answered))
    wait_until(lambda: killing.status(worker.pid) not in killing.STANDS_STILL, what="the run that goes on")
