"""Fill the slots, and fill them again: at once where a worker was ready, later each time where none gets that far."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import secrets
import socket

import structlog
import tenacity

from fencepost.board import Board, Phase, boottime
from fencepost.memory import anonymous
from fencepost.start import WorkerStart
from fencepost.supervisor.booking import book
from fencepost.supervisor.deaths import DeadWorker
from fencepost.supervisor.fork import fork_worker
from fencepost.supervisor.state import TRIAL, Child, Slot, State

log = structlog.get_logger()

AFTER_A_FAILED_START = tenacity.wait_exponential(multiplier=0.2, max=25) + tenacity.wait_random(0, 0.2)
"""Seconds before a slot whose worker never got ready is tried again: longer each time, at most about half a minute."""

STARTS_BEFORE_LEAVING = 5
NOTE_LIMIT = 1024 * 1024
CANNOT_START = 70
REFUSED = 78


def fill_slots(state: State) -> None:
    """Fork a worker for each empty slot whose time has come."""
    now = boottime()
    for slot in state.slots:
        if slot.child is None and now >= slot.refill_at and not state.draining and state.exit_code is None:
            fill(state, slot)


def fill(state: State, slot: Slot) -> None:
    """Fork a worker for an empty slot."""
    # The deadline counts from before the fork: a child that blocks in its first instant has one too.
    forked_at = boottime()
    name = f"w{secrets.token_hex(8)}"
    memory = anonymous()
    with contextlib.ExitStack() as opened:
        try:
            ours, theirs = socket.socketpair()
            opened.callback(ours.close)
            # A module that was preloaded may have set a time limit for new sockets.
            theirs.settimeout(None)
            note, stacks = (_file(opened, name) for name in ("fencepost-note", "fencepost-stacks"))
            board = Board()
            opened.callback(board.close)
            board.order(pause=state.paused)
            with theirs:
                start = WorkerStart(state.settings, slot.number, name, board, theirs, note, stacks, memory)
                pid = fork_worker(start, only_try=slot.number == TRIAL)
            board.keep_from_others()
        except OSError as error:
            _put_off(slot)
            reason = errno.errorcode.get(error.errno or 0, str(error))
            log.error("no process or no descriptors for a worker", slot=slot.number, error=reason)
            return
        opened.pop_all()
    ours.setblocking(False)
    child = Child(name, slot.number, pid, _pidfd(pid), board, ours, note, stacks, memory, forked_at)
    slot.child = child
    loop = asyncio.get_running_loop()
    loop.add_reader(ours, _line_says, child)
    if child.pidfd is not None:
        loop.add_reader(child.pidfd, state.reap)


def _line_says(child: Child) -> None:
    """Hear what comes up a line: its end, or what only a job can have written there, since a worker writes nothing."""
    asyncio.get_running_loop().remove_reader(child.line)
    if _heard(child.line):
        log.warning("a job wrote to its worker's line: the worker is replaced", slot=child.slot, worker=child.name)
        child.leave()


def _heard(line: socket.socket) -> bytes:
    try:
        return line.recv(1)
    except OSError:
        return b""


def after_death(state: State, child: Child, dead: DeadWorker) -> None:
    """Empty the slot, have what the worker held booked, and say when the slot is filled again."""
    slot = next(slot for slot in state.slots if slot.child is child)
    loop = asyncio.get_running_loop()
    loop.remove_reader(child.line)
    if child.pidfd is not None:
        loop.remove_reader(child.pidfd)
    note = read_note(child)
    slot.child = None
    child.close()
    state.changed.set()
    if slot.closing:
        state.slots.remove(slot)
    if slot.number == TRIAL:
        state.trial = judged(note, dead)
    elif child.ready:
        if died_at_its_first_claim(dead):
            _put_off(slot)
        else:
            slot.failed_starts = slot.died_at_start = 0
            slot.refill_at = 0.0
        if not dead.left_as_it_should:
            state.spawn(book(state, dead), booking=True)
    else:
        _after_failed_start(state, slot, dead, note)
    fill_slots(state)


def died_at_its_first_claim(dead: DeadWorker) -> bool:
    """Whether a worker died by itself before it had any job to die of: the next one may do the same, so it waits longer."""
    record = dead.record
    return dead.kill is None and record is not None and record.phase is Phase.claiming and record.claim == 1


def _after_failed_start(state: State, slot: Slot, dead: DeadWorker, note: dict[str, object]) -> None:
    _put_off(slot)
    if dead.kill is None:
        slot.died_at_start += 1
    error, refused = note.get("error"), refusal_in(note)
    if state.ever_ready and (error or refused):
        log.error("no worker can be made of the handlers; those that run go on", slot=slot.number, error=error or refused)
    elif refused:
        state.leave(REFUSED, refused)
    elif error:
        state.leave(CANNOT_START, f"the handlers don't import: {error}")
    elif slot.died_at_start >= STARTS_BEFORE_LEAVING and not state.ever_ready:
        state.leave(CANNOT_START, f"no worker can start, {slot.died_at_start} tries of slot {slot.number} ended: {dead.death}")


def _put_off(slot: Slot) -> None:
    slot.failed_starts += 1
    attempt = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    attempt.attempt_number = slot.failed_starts
    slot.refill_at = boottime() + AFTER_A_FAILED_START(attempt)


def look_at_note(state: State, child: Child) -> None:
    """Learn whether the child is ready, and from the newest one that is, the kinds that it can run."""
    if child.ready or child.slot == TRIAL:
        return
    kinds = kinds_of(read_note(child))
    if kinds is None:
        return
    child.ready = state.ever_ready = True
    log.info(
        "a worker is ready", slot=child.slot, worker=child.name, pid=child.pid, after=round(boottime() - child.forked_at, 3)
    )
    if kinds != state.kinds:
        # Others than before after a deploy: the newest code is what all will run soon.
        state.kinds = kinds
        state.look_now.set()
        state.register_now.set()


def kinds_of(note: dict[str, object]) -> list[str] | None:
    """Return the kinds in a note, or None if it has none yet."""
    kinds = note.get("kinds")
    return [kind for kind in kinds if _is_a_kind(kind)] if isinstance(kinds, list) else None


def refusal_in(note: dict[str, object]) -> str:
    """Return what a note says that refuses a start, with its cure; empty: nothing does."""
    refused = note.get("refused")
    return ": ".join(map(str, refused)) if isinstance(refused, list) else ""


def judged(note: dict[str, object], dead: DeadWorker) -> str:
    """Return what is wrong with the handlers after a trial of them, or nothing."""
    if wrong := note.get("error") or refusal_in(note):
        return str(wrong)
    if dead.kill is not None and dead.kill.reason == "boot_timeout":
        return "importing the handlers took longer than FENCEPOST_BOOT_TIMEOUT"
    return f"importing the handlers ended the process: {dead.death}" if kinds_of(note) is None else ""


def read_note(child: Child) -> dict[str, object]:
    """Return what a child has written of its start. It is believed in nothing but its own kinds and errors."""
    try:
        note = json.loads(os.pread(child.note, NOTE_LIMIT, 0) or b"{}")
    except (ValueError, RecursionError):
        return {}
    return note if isinstance(note, dict) else {}


def _is_a_kind(kind: object) -> bool:
    if not isinstance(kind, str) or "\0" in kind:
        return False
    as_sent = kind.encode(errors="replace")
    # One that the database can't be asked for, with half of a surrogate pair, would cost all slots their polls.
    return 0 < len(as_sent) <= 256 and as_sent.decode() == kind


def _file(opened: contextlib.ExitStack, name: str) -> int:
    fd = os.memfd_create(name)
    opened.callback(os.close, fd)
    # What is written after it was emptied begins at its start again.
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    return fd


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None  # forbidden by a seccomp filter: SIGCHLD tells as well
