"""Keep the leases of busy workers, all in one statement.

The supervisor speaks for its children. A busy worker cannot answer and a stuck one might, so neither is asked: a child that
the kernel has not reported dead is alive, until its max runtime says otherwise.

Invariant: one beat may always fail (protocol, rule 10), and only what the board shows as running is prolonged.
"""

from __future__ import annotations

import asyncio
import json
import math
from datetime import timedelta

import psycopg
import structlog

from fencepost.board import Phase, Record, boottime
from fencepost.jobs.heartbeat import Answer, Beat, heartbeat
from fencepost.start import claim_name
from fencepost.supervisor.database import Away
from fencepost.supervisor.kill import kill_run, let_go, stop_run, told
from fencepost.supervisor.state import Child, Kill, State

log = structlog.get_logger()


TOGETHER = 0.1
"""Seconds between two beats at least."""


async def beat(state: State) -> None:
    """Beat on a fixed schedule; sooner again after one that failed, and when asked to."""
    period = state.settings.heartbeat
    last = boottime()
    next_at = last + period
    while True:
        try:
            async with asyncio.timeout(max(0.0, next_at - boottime())):
                await state.beat_now.wait()
            # Cancels that come one by one are one reason to beat.
            await asyncio.sleep(max(0.0, last + TOGETHER - boottime()))
        except TimeoutError:
            next_at += period
        state.beat_now.clear()
        last = boottime()
        next_at = max(next_at, boottime())
        if busy := state.busy():
            try:
                await _beat(state, busy)
            except (Away, psycopg.Error) as error:
                log.debug("a heartbeat failed", error=str(error))
                next_at = min(next_at, boottime() + min(1.0, period / 4))


async def _beat(state: State, busy: list[tuple[Child, Record]]) -> None:
    # Read before the statement is sent: the server's new lease begins later than ours, never earlier.
    sent_at = boottime()
    beats = {
        claim_name(child.name, record.claim): Beat(
            record.job_id, record.fence, claim_name(child.name, record.claim), _progress(record)
        )
        for child, record in busy
    }
    answers = await state.beats.run(
        lambda conn: heartbeat(conn, state.settings.schema, list(beats.values()), timedelta(seconds=state.settings.lease))
    )
    for child, record in busy:
        answer = answers.get(claim_name(child.name, record.claim))
        if answer is not None:
            _take(state, child, record.claim, answer, sent_at)


def _take(state: State, child: Child, claim: int, answer: Answer, sent_at: float) -> None:
    if child.gone:
        return
    record = child.record()
    held = child.held is not None and child.held[0] == claim
    match answer.state:
        case "renewed":
            child.kept = (claim, sent_at)
            # One that was sent before we were away may have been answered then, and the lease be over since.
            if held and boottime() < sent_at + state.settings.holds_for:
                let_go(child, "the lease is still held: the run goes on")
            if answer.cancel_requested:
                state.spawn(stop_run(state, child, claim, "cancel"))
        case "lost" if record is None or (record.claim == claim and record.phase is Phase.running):
            # A worker says "finishing" before its finish is sent: then the row may be lost because it is finished, and no
            # code of the job runs any more. What is still running has lost its lease.
            log.warning("the lease was lost: the run is killed", slot=child.slot, worker=child.name, **told(child))
            child.held = None
            state.spawn(kill_run(child, Kill("lease", claim)))
        case "lost" if held:
            let_go(child, "the run was finishing as it was held: its worker goes on")
        case _:
            pass  # someone has the row locked just now: that is not lost, and moves no deadline


def _progress(record: Record) -> str | None:
    done, total = record.progress
    if not math.isfinite(done):
        return None
    return json.dumps({"done": done, "total": total if math.isfinite(total) else None})
