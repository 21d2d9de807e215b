"""Stop a run: ask, then dump where it hangs, then kill; and never hit the slot's next job.

A worker writes "finishing" on the board before it sends a finish, and "claiming, number n" before it claims. So it is stopped
first (SIGSTOP), and what the board says then holds still: only if the claim that is meant is still there is it killed
(protocol, rule 15).
"""

from __future__ import annotations

import asyncio
import os
import signal

import structlog

from fencepost.board import BUSY, Phase, boottime
from fencepost.job import StopReason
from fencepost.supervisor.state import Child, Kill, State

log = structlog.get_logger()

DUMP_TAKES = 0.3
"""Seconds that faulthandler gets to write the stacks."""

FINISH_MAY_TAKE = 5.0
"""Seconds that a run past its limit may still be finishing. Killing it then is safe too: what it committed stands."""

STANDS_STILL = (b"T", b"t", b"Z", b"X")
STANDS_STILL_WITHIN = 0.25

STACK_LIMIT = 64 * 1024
OURS = os.path.join("fencepost", "worker", "")


async def stop_run(state: State, child: Child, claim: int, reason: StopReason) -> None:
    """Ask the run under `claim` to stop; kill it if it has not within the grace."""
    # Gone: the slot's record and its next worker's claim 1, 2, … are another's by now.
    if gone(state, child) or child.stopping == claim or child.kill is not None:
        return
    child.stopping = claim
    log.info("asking the run to stop", slot=child.slot, worker=child.name, pid=child.pid, reason=reason, **told(state, child))
    state.board.ask_to_stop(child.slot, claim, reason)
    send(child, signal.SIGUSR2)
    if await _ended(state, child, claim, state.settings.kill_grace):
        return
    # From here on its death is our doing, also before SIGKILL: faulthandler reads the stacks of threads that run meanwhile,
    # and may crash on what it finds.
    child.doomed = Kill(reason, claim)
    stack = await _dumped(state, child)
    await kill_run(state, child, claim, reason, stack)


async def kill_run(state: State, child: Child, claim: int, reason: str, stack: str | None = None) -> None:
    """Kill the run under `claim`, if that is still what the child does."""
    if gone(state, child):
        return
    child.stopping = claim
    give_up_finishing_at = boottime() + FINISH_MAY_TAKE
    while child.kill is None and not gone(state, child):
        await _stopped(child)
        if gone(state, child):
            return
        record = state.record(child)
        if record is not None and (record.claim != claim or record.phase in (Phase.idle, Phase.leaving)):
            # It has ended meanwhile, and what runs now is another, to which the stack of this one does not belong.
            os.ftruncate(child.stacks, 0)
            send_group(child, signal.SIGCONT)
            child.stopping = 0
            child.doomed = None
            return
        if record is not None and record.phase is Phase.finishing and boottime() < give_up_finishing_at and reason != "lease":
            send_group(child, signal.SIGCONT)
            await asyncio.sleep(0.02)
            continue
        # What can't be read now was half written as it stopped, or scribbled over: its claim is asked of the table later.
        kill(child, Kill(reason, claim, stack))
        log.warning("killed the worker of a run", slot=child.slot, worker=child.name, pid=child.pid, reason=reason)


def kill(child: Child, why: Kill) -> None:
    """SIGKILL to the child and its group, for `why`."""
    child.kill = why
    send_group(child, signal.SIGKILL)


def gone(state: State, child: Child) -> bool:
    """Whether the child has died meanwhile."""
    return state.slots[child.slot - 1].child is not child


def send(child: Child, number: signal.Signals) -> None:
    """Signal the child alone. Its number can't be a stranger's: only we reap it."""
    try:
        os.kill(child.pid, number)
    except OSError:
        pass  # dead already, or a program with other rights by now: its group's end is all we have


def send_group(child: Child, number: signal.Signals) -> None:
    """Signal the child and its group, after making sure that the group is its own.

    In the first instant after the fork it may still be in ours. A job can also move its process to another group: then
    that group is left alone, and the child signalled by itself.
    """
    try:
        if os.getpgid(child.pid) == child.pid != os.getpgrp():
            os.killpg(child.pid, number)
        else:
            os.kill(child.pid, number)
    except OSError:
        pass  # as above


def told(state: State, child: Child) -> dict[str, object]:
    """Return what each log line about a run says."""
    record = state.record(child)
    if record is None or record.phase not in BUSY:
        return {}
    return {
        "job": record.job_id,
        "kind": record.kind,
        "attempt": record.attempt,
        "fence": record.fence,
        "tenant": record.tenant or None,
        "ran_for": round(boottime() - record.claimed_at, 3),
    }


async def _ended(state: State, child: Child, claim: int, within: float) -> bool:
    """Wait until the run is over, for at most `within` seconds."""
    until = boottime() + within
    while not gone(state, child):
        record = state.record(child)
        if record is not None and (record.claim != claim or record.phase not in BUSY):
            child.stopping = 0
            return True
        if boottime() >= until:
            return False
        await asyncio.sleep(min(0.02, max(0.0, until - boottime())))
    return True


async def _dumped(state: State, child: Child) -> str | None:
    """Have faulthandler write the stacks, from C and whoever holds the GIL, and return them."""
    before = os.fstat(child.stacks).st_size
    send(child, signal.SIGUSR1)
    # A process that has stopped itself handles nothing until it goes on.
    send_group(child, signal.SIGCONT)
    until = boottime() + DUMP_TAKES
    size = before
    while boottime() < until:
        await asyncio.sleep(0.02)
        if gone(state, child):
            return None
        now = os.fstat(child.stacks).st_size
        if now == size and now > before:
            break
        size = now
    return stack_text(child.stacks, before)


def stack_text(fd: int, start: int = 0) -> str | None:
    """Return what faulthandler has written behind `start`, or None."""
    text = os.pread(fd, STACK_LIMIT, start).decode(errors="replace").replace("\0", "").strip()
    return without_our_frames(text) or None


def without_our_frames(text: str) -> str:
    """Return the stacks of a dump, each down to the job's own code: what lies below it, and the pool's threads, are ours."""
    stacks = []
    for stack in text.split("\n\n"):
        lines = []
        for line in stack.splitlines():
            if OURS in line:
                break
            lines.append(line)
        if f"{os.sep}psycopg_pool{os.sep}" not in stack:
            stacks.append("\n".join(lines))
    return "\n\n".join(stacks)


async def _stopped(child: Child) -> None:
    """Stop the child, and wait until it stands still: what the board says then is true until it is let go or killed.

    Not for long: in the kernel it may not be to be stopped, and SIGKILL comes when it comes out. A main thread that has left
    looks dead (Z) while other threads live on: that one is killed like any other.
    """
    send_group(child, signal.SIGSTOP)
    until = boottime() + STANDS_STILL_WITHIN
    while boottime() < until and _status(child.pid) not in STANDS_STILL:  # noqa: ASYNC110  # the kernel sends no event
        await asyncio.sleep(0.001)


def _status(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0]
    except OSError:
        return b"X"
