"""Stop a run: ask, then dump where it hangs, then kill; and never hit the slot's next job.

A worker writes "finishing" on the board before it sends a finish, and "claiming, number n" before it claims. So it is stopped
first (SIGSTOP), and what the board says then holds still: only if the claim that is meant is still there is it killed
(protocol, rule 15).
"""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace

import structlog

from fencepost.board import BUSY, Phase, boottime
from fencepost.job import StopReason
from fencepost.supervisor.stacks import dumped, status
from fencepost.supervisor.state import Child, Kill, State

log = structlog.get_logger()

FINISH_MAY_TAKE = 5.0
"""Seconds that a run past its limit may still be finishing. Killing it then is safe too: what it committed stands."""

STANDS_STILL = (b"T", b"t", b"Z", b"X")
STANDS_STILL_WITHIN = 0.25


async def stop_run(state: State, child: Child, claim: int, reason: StopReason) -> None:
    """Ask the run under `claim` to stop; kill it if it has not within the grace."""
    if child.gone or child.stopping == claim or child.kill is not None:
        return
    child.stopping = claim
    log.info("asking the run to stop", slot=child.slot, worker=child.name, pid=child.pid, reason=reason, **told(child))
    child.board.order(stop=(claim, reason))
    send(child, signal.SIGUSR2)
    if await _ended(child, claim, state.settings.kill_grace):
        return
    # From here on its death is our doing, also before SIGKILL: having its stacks written may end it. One that has stopped
    # itself is not woken for that: it would run on, and perhaps return.
    child.doomed = Kill(reason, claim)
    await _dump_and_kill(child, child.doomed)


async def kill_for_memory(child: Child, claim: int, detail: str) -> None:
    """Kill the run under `claim` without asking: what it takes is gone before it could answer."""
    child.doomed = Kill("memory", claim, detail=detail)
    await _dump_and_kill(child, child.doomed)


async def _dump_and_kill(child: Child, why: Kill) -> None:
    await kill_run(child, replace(why, stack=await dumped(child)))


async def kill_run(child: Child, why: Kill) -> None:
    """Kill the run that is meant, if that is still what the child does."""
    if child.gone:
        return
    child.stopping = why.claim
    give_up_finishing_at = boottime() + FINISH_MAY_TAKE
    while child.kill is None and not child.gone:
        await _stopped(child)
        if child.gone:
            return
        record = child.record()
        if record is not None and (record.claim != why.claim or record.phase in (Phase.idle, Phase.leaving)):
            # It has ended meanwhile, and what runs now is another, to which the stack of this one does not belong.
            os.ftruncate(child.stacks, 0)
            send_group(child, signal.SIGCONT)
            child.stopping = 0
            child.doomed = None
            return
        if (
            record is not None
            and record.phase is Phase.finishing
            and boottime() < give_up_finishing_at
            and why.reason != "lease"
        ):
            send_group(child, signal.SIGCONT)
            await asyncio.sleep(0.02)
            continue
        # What can't be read now was half written as it stopped, or scribbled over: its claim is asked of the table later.
        kill(child, why)
        log.warning(
            "killed the worker of a run",
            slot=child.slot,
            worker=child.name,
            pid=child.pid,
            reason=why.reason,
            **({"detail": why.detail} if why.detail else {}),
        )


def kill(child: Child, why: Kill) -> None:
    """SIGKILL to the child and its group, for `why`."""
    child.kill, child.killed_at = why, boottime()
    send_group(child, signal.SIGKILL)


def let_go(child: Child, why: str) -> None:
    """Let the child and its group go on, that were held until the database has told; unless they die by now."""
    child.held = None
    if child.kill is None:
        log.info(why, slot=child.slot, worker=child.name, pid=child.pid)
        send_group(child, signal.SIGCONT)


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


def told(child: Child) -> dict[str, object]:
    """Return what each log line about a run says."""
    record = child.record()
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


async def _ended(child: Child, claim: int, within: float) -> bool:
    """Wait until the run is over, for at most `within` seconds."""
    until = boottime() + within
    while not child.gone:
        record = child.record()
        if record is not None and (record.claim != claim or record.phase not in BUSY):
            child.stopping = 0
            return True
        if boottime() >= until:
            return False
        await asyncio.sleep(min(0.02, max(0.0, until - boottime())))
    return True


async def _stopped(child: Child) -> None:
    """Stop the child, and wait until it stands still: what the board says then is true until it is let go or killed.

    Not for long: in the kernel it may not be to be stopped, and SIGKILL comes when it comes out. A main thread that has left
    looks dead (Z) while other threads live on: that one is killed like any other.
    """
    send_group(child, signal.SIGSTOP)
    until = boottime() + STANDS_STILL_WITHIN
    while boottime() < until and status(child.pid) not in STANDS_STILL:  # noqa: ASYNC110  # the kernel sends no event
        await asyncio.sleep(0.001)
