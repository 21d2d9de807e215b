"""Leave: claim no more, let running jobs finish, stop what does not, and be gone in time.

Three steps, each begun by the one before it having taken too long, or by another TERM: wait, stop, kill. What had to be
stopped goes back to the queue uncounted. Gone at the latest DRAIN_TIMEOUT + KILL_GRACE + 2 s after the first TERM.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from fencepost.board import BUSY, boottime
from fencepost.supervisor.kill import kill, stop_run
from fencepost.supervisor.state import Child, Kill, State

log = structlog.get_logger()

AFTER_GRACE = 0.7
"""Seconds of the last two for dumping stacks and killing; the rest is for booking."""

AFTER_KILL = 0.3
FOR_BOOKING = 0.8
"""With the third of a second that taking our row away may take, all of it is within the last two."""

STEPS = {
    1: "drain: claiming no more, running jobs may finish",
    2: "drain: stopping running jobs now",
    3: "drain: killing running jobs now",
}


def begin(state: State, step: int, why: str) -> None:
    """Go on to `step` of the drain, if it is not there yet. Never back."""
    if step <= state.drain_step:
        return
    log.info(STEPS[step], why=why, running=len(state.busy()))
    state.drain_step = step
    for child in state.children():
        child.say(b"d", drain=True)
    state.register_now.set()
    state.changed.set()


async def drain(state: State) -> None:
    """See the drain through, from its first step to the last child's end."""
    until = boottime() + state.settings.drain_timeout
    state.gone_at = until + state.settings.kill_grace + AFTER_GRACE + FOR_BOOKING
    for child in state.children():
        if not child.ready:
            # It has nothing that could be lost, and may take a minute to be ready.
            kill(child, Kill("drain", 0))
    await _until(state, until, lambda: state.drain_step > 1)
    if state.children():
        begin(state, 2, "the drain has taken too long")
        for child, record in state.busy():
            state.stopped_jobs = True
            state.spawn(stop_run(state, child, record.claim, "drain"))
        await _until(state, boottime() + state.settings.kill_grace + AFTER_GRACE, lambda: state.drain_step > 2)
    if state.children():
        begin(state, 3, "some did not stop")
        for child in state.children():
            _kill(state, child)
        await _until(state, boottime() + AFTER_KILL, lambda: False)
    if state.bookings:
        # As far as the database lets us; what is not booked is swept by another supervisor.
        await asyncio.wait(set(state.bookings), timeout=max(0.1, state.gone_at - boottime()))


def _kill(state: State, child: Child) -> None:
    record = child.record()
    state.stopped_jobs |= record is None or record.phase in BUSY
    if child.kill is None:
        kill(child, Kill("drain", record.claim if record is not None else -1))


async def _until(state: State, deadline: float, early: Callable[[], bool]) -> None:
    while state.children() and boottime() < deadline and not early():  # noqa: ASYNC110  # deaths and signals both end it
        await asyncio.sleep(0.02)
