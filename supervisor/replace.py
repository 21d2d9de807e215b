"""Replace the workers, one at a time, each after its job: a deploy of new handlers without a gap (HUP).

The new handlers are tried first, in a process of their own. If they don't import, the old workers go on; so do those that are
not replaced yet when a new one does not get ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from fencepost.board import BUSY, boottime
from fencepost.supervisor.state import TRIAL, Child, Slot, State

log = structlog.get_logger()

BETWEEN_LOOKS = 0.02


async def replace_workers(state: State) -> None:
    """Replace the workers that were forked before the last HUP. One that comes meanwhile begins it anew."""
    while True:
        await state.replace_now.wait()
        state.replace_now.clear()
        asked_at = boottime()
        if state.settings.preload:
            log.warning("the workers are replaced, but with the same handlers: FENCEPOST_PRELOAD imported them for good")
        elif wrong := await _tried(state):
            log.error("the new handlers can't be used: the workers go on with the old ones", error=wrong)
            continue
        replaced = 0
        while (child := _next(state, asked_at)) is not None and not state.replace_now.is_set():
            replaced += await _replaced(state, child)
        if not state.draining and not state.replace_now.is_set():
            log.info("all workers are replaced", workers=replaced)


async def _tried(state: State) -> str:
    """Return what is wrong with the handlers as they are now, or nothing."""
    state.trial = None
    state.slots.insert(0, Slot(TRIAL, closing=True))
    # The next tick fills it; its deadline, its death and what it leaves behind are as any worker's.
    state.changed.set()
    await _until(lambda: state.trial is not None or state.draining)
    return state.trial or ""


def _next(state: State, asked_at: float) -> Child | None:
    """Return the next worker that is to be replaced: idle ones first."""
    old = [child for child in state.children() if child.slot != TRIAL and child.forked_at < asked_at]
    return min(old, key=_is_busy, default=None) if not state.draining else None


def _is_busy(child: Child) -> bool:
    record = child.record()
    return record is None or record.phase in BUSY


async def _replaced(state: State, child: Child) -> bool:
    """Have a worker leave after its job, and wait until another is ready in its place. False if there is to be none."""
    slot = next(slot for slot in state.slots if slot.child is child)
    # One that is still booting has its deadline, and may not listen before.
    await _until(lambda: child.ready or child.gone or state.draining)
    if not child.gone and not child.leaving:
        child.leave()
    await _until(lambda: child.gone or state.draining)
    await _until(lambda: slot not in state.slots or (slot.child is not None and slot.child.ready) or state.draining)
    return slot in state.slots and not state.draining


async def _until(reached: Callable[[], bool]) -> None:
    while not reached():  # noqa: ASYNC110  # a death, a note and a drain all end it
        await asyncio.sleep(BETWEEN_LOOKS)
