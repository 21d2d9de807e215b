"""Fill the slots, and fill them again: at once where a worker was ready, later each time where none gets that far."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import secrets
import socket

import structlog
import tenacity

from fencepost.board import Phase, boottime
from fencepost.start import WorkerStart
from fencepost.supervisor.booking import book
from fencepost.supervisor.deaths import DeadWorker
from fencepost.supervisor.fork import fork_worker
from fencepost.supervisor.state import Child, Slot, State

log = structlog.get_logger()

AFTER_A_FAILED_START = tenacity.wait_exponential(multiplier=0.2, max=25) + tenacity.wait_random(0, 0.2)
"""Seconds before a slot whose worker never got ready is tried again: longer each time, at most about half a minute."""

STARTS_BEFORE_LEAVING = 5
NOTE_LIMIT = 1024 * 1024
CANNOT_START = 70


def fill_slots(state: State) -> None:
    """Fork a worker for each empty slot whose time has come."""
    now = boottime()
    for slot in state.slots:
        if slot.child is None and now >= slot.refill_at and not state.draining and state.exit_code is None:
            _fill(state, slot)


def _fill(state: State, slot: Slot) -> None:
    # The deadline counts from before the fork: a child that blocks in its first instant has one too.
    forked_at = boottime()
    name = f"w{secrets.token_hex(8)}"
    with contextlib.ExitStack() as opened:
        try:
            ours, theirs = socket.socketpair()
            opened.callback(ours.close)
            note, stacks = (_file(opened, name) for name in ("fencepost-note", "fencepost-stacks"))
            state.board.clear(slot.number)
            with theirs:
                pid = fork_worker(WorkerStart(state.settings, slot.number, name, state.board, theirs, note, stacks))
        except OSError as error:
            _put_off(slot)
            reason = errno.errorcode.get(error.errno or 0, str(error))
            log.error("no process or no descriptors for a worker", slot=slot.number, error=reason)
            return
        opened.pop_all()
    ours.setblocking(False)
    slot.child = Child(name, slot.number, pid, _pidfd(pid), ours, note, stacks, forked_at)
    if slot.child.pidfd is not None:
        asyncio.get_running_loop().add_reader(slot.child.pidfd, state.reap)


def after_death(state: State, child: Child, dead: DeadWorker) -> None:
    """Empty the slot, have what the worker held booked, and say when the slot is filled again."""
    slot = state.slots[child.slot - 1]
    if child.pidfd is not None:
        asyncio.get_running_loop().remove_reader(child.pidfd)
    error = None if child.ready else read_note(child).get("error")
    slot.child = None
    child.close()
    state.changed.set()
    if child.ready:
        if died_at_its_first_claim(dead):
            _put_off(slot)
        else:
            slot.failed_starts = slot.died_at_start = 0
            slot.refill_at = 0.0
        if not dead.left_as_it_should:
            state.spawn(book(state, dead), booking=True)
    else:
        _after_failed_start(state, slot, dead, error)
    fill_slots(state)


def died_at_its_first_claim(dead: DeadWorker) -> bool:
    """Whether a worker died by itself before it had any job to die of: the next one may do the same, so it waits longer."""
    record = dead.record
    return dead.kill is None and record is not None and record.phase is Phase.claiming and record.claim == 1


def _after_failed_start(state: State, slot: Slot, dead: DeadWorker, error: object) -> None:
    _put_off(slot)
    if dead.kill is None:
        slot.died_at_start += 1
    if error and not state.ever_ready:
        state.leave(CANNOT_START, f"the handlers don't import: {error}")
    elif slot.died_at_start >= STARTS_BEFORE_LEAVING and not state.ever_ready:
        state.leave(CANNOT_START, f"no worker can start, {slot.died_at_start} tries of slot {slot.number} ended: {dead.death}")
    elif error:
        log.error("the handlers don't import; the workers that run go on", slot=slot.number, error=error)


def _put_off(slot: Slot) -> None:
    slot.failed_starts += 1
    attempt = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    attempt.attempt_number = slot.failed_starts
    slot.refill_at = boottime() + AFTER_A_FAILED_START(attempt)


def look_at_note(state: State, child: Child) -> None:
    """Learn whether the child is ready, and from the first one that is, the kinds that it can run."""
    if child.ready:
        return
    kinds = read_note(child).get("kinds")
    if isinstance(kinds, list):
        child.ready = state.ever_ready = True
        log.info("a worker is ready", slot=child.slot, worker=child.name, pid=child.pid)
        if state.kinds is None:
            state.kinds = [kind for kind in kinds if _is_a_kind(kind)]
            state.look_now.set()
            state.register_now.set()


def read_note(child: Child) -> dict[str, object]:
    """Return what a child has written of its start. It is believed in nothing but its own kinds and errors."""
    try:
        note = json.loads(os.pread(child.note, NOTE_LIMIT, 0) or b"{}")
    except (ValueError, RecursionError):
        return {}
    return note if isinstance(note, dict) else {}


def _is_a_kind(kind: object) -> bool:
    return isinstance(kind, str) and "\0" not in kind and 0 < len(kind.encode(errors="replace")) <= 256


def _file(opened: contextlib.ExitStack, name: str) -> int:
    fd = os.memfd_create(name)
    opened.callback(os.close, fd)
    return fd


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None  # forbidden by a seccomp filter: SIGCHLD tells as well
