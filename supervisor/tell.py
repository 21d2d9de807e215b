"""Say what every slot does, with stacks (USR1): what an operator wants to know of a supervisor that seems to hang."""

from __future__ import annotations

import asyncio
import os

import structlog

from fencepost.board import Phase, boottime
from fencepost.supervisor.kill import told
from fencepost.supervisor.restart import look_at_note
from fencepost.supervisor.stacks import dumped
from fencepost.supervisor.state import Child, Slot, State

log = structlog.get_logger()

ANSWERS_WITHIN = 1.0
"""Seconds that a worker gets to tell where it is before it is asked from C, which a healthy one must be spared."""


async def tell_all(state: State) -> None:
    """Tell, unless that goes on already: then once more behind it, however often it was asked for meanwhile."""
    state.looks_asked_for += 1
    if state.looks_asked_for > 1:
        return
    try:
        while state.looks_asked_for:
            await _tell_all(state)
            state.looks_asked_for = min(1, state.looks_asked_for - 1)
    finally:
        state.looks_asked_for = 0


async def _tell_all(state: State) -> None:
    """Log a line for the supervisor and one for each slot. None waits for the database, or for another's answer."""
    log.info(
        "SIGUSR1: what every slot does",
        workers=len(state.children()),
        draining=state.draining,
        paused=state.paused,
        listening=state.listening,
        bookings=len(state.bookings),
        strays=sorted(state.strays),
    )
    await asyncio.gather(*(_tell(state, slot) for slot in list(state.slots)))


async def _tell(state: State, slot: Slot) -> None:
    child = slot.child
    if child is None:
        log.info("slot", slot=slot.number, phase="empty", filled_in=round(max(0.0, slot.refill_at - boottime()), 3))
        return
    # It may have become ready since the last tick.
    look_at_note(state, child)
    stack = None
    if child.ready and child.kill is None and child.doomed is None:
        stack = await dumped(child, ANSWERS_WITHIN, spare=True)
        if not child.gone and child.doomed is None:
            # Told: what is found there later is of something else.
            os.ftruncate(child.stacks, 0)
    does = phase(child)
    if does == Phase.idle.name:
        # It has just looked for work, and is through with that.
        stack = None
    log.info("slot", slot=slot.number, phase=does, worker=child.name, pid=child.pid, **told(child), stack=stack)


def phase(child: Child) -> str:
    """Return in a word what a child does."""
    record = child.record()
    if child.gone:
        return "gone"
    if child.kill is not None:
        return "killed"
    if not child.ready:
        return "booting"
    return record.phase.name if record is not None else "unknown"
