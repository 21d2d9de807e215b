"""Stop a run: ask, then dump where it hangs, then kill; and never hit the slot's next job.

A worker writes "finishing" on the board before it sends a finish, and "claiming, number n" before it claims. So it is stopped
first (SIGSTOP), and what the board says then holds still: only if the claim that is meant is still there is it killed
(protocol, rule 15).
"""

from __future__ import annotations

import asyncio
import os
import signal
import time

import structlog

from fencepost.board import BUSY, Phase, boottime
from fencepost.job import StopReason
from fencepost.supervisor.state import Child, Kill, State

log = structlog.get_logger()

DUMP_TAKES = 0.3
"""Seconds that faulthandler gets to write the stacks."""

FINISH_MAY_TAKE = 5.0
"""Seconds that a run past its limit may still be finishing. Killing it then is safe too: what it committed stands."""

STACK_LIMIT = 64 * 1024


async def stop_run(state: State, child: Child, claim: int, reason: StopReason) -> None:
    """Ask the run under `claim` to stop; kill it if it has not within the grace."""
    if child.stopping == claim or child.kill is not None:
        return
    child.stopping = claim
    log.info("asking the run to stop", slot=child.slot, worker=child.name, pid=child.pid, reason=reason, **told(state, child))
    state.board.ask_to_stop(child.slot, claim, reason)
    send(child, signal.SIGUSR2)
    if await _ended(state, child, claim, state.settings.kill_grace):
        return
    stack = await _dumped(child)
    await kill_run(state, child, claim, reason, stack)


async def kill_run(state: State, child: Child, claim: int, reason: str, stack: str | None = None) -> None:
    """Kill the run under `claim`, if that is still what the child does."""
    child.stopping = claim
    give_up_finishing_at = boottime() + FINISH_MAY_TAKE
    while child.kill is None and not gone(state, child):
        if not _stop_and_wait(child):
            return
        record = state.record(child)
        if record is not None and (record.claim != claim or record.phase in (Phase.idle, Phase.leaving)):
            # It has ended meanwhile, and what runs now is another.
            send_group(child, signal.SIGCONT)
            child.stopping = 0
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
    except ProcessLookupError:
        pass


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
    except ProcessLookupError:
        pass


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


async def _dumped(child: Child) -> str | None:
    """Have faulthandler write the stacks, from C and whoever holds the GIL, and return them."""
    before = os.fstat(child.stacks).st_size
    send(child, signal.SIGUSR1)
    # A process that has stopped itself handles nothing until it goes on.
    send_group(child, signal.SIGCONT)
    until = boottime() + DUMP_TAKES
    size = before
    while boottime() < until:
        await asyncio.sleep(0.02)
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
            if f"{os.sep}worker{os.sep}run.py" in line or f"{os.sep}worker{os.sep}loop.py" in line:
                break
            lines.append(line)
        if f"{os.sep}psycopg_pool{os.sep}" not in stack:
            stacks.append("\n".join(lines))
    return "\n\n".join(stacks)


def _stop_and_wait(child: Child) -> bool:
    """Stop the child; False if it is dead. It is short and nothing else may come in between, so the loop waits here."""
    send_group(child, signal.SIGSTOP)
    until = time.monotonic() + 0.25
    while time.monotonic() < until:
        try:
            with open(f"/proc/{child.pid}/stat", "rb") as file:
                status = file.read().rpartition(b")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        if status in b"ZX":
            return False
        if status in b"Tt":
            return True
        time.sleep(0.001)
    # In the kernel and not to be stopped just now: the board may still move, and SIGKILL will come when it comes out.
    return True
