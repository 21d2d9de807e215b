"""How a child died, and who did it: told from what the kernel says, in words for people.

Pure: what is known goes in, what is written comes out.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from fencepost.board import Phase, Record
from fencepost.job import Ended, Outcome
from fencepost.jobs.claim import Claim
from fencepost.supervisor.state import Kill


@dataclass(frozen=True, slots=True)
class Death:
    """What the kernel told of a dead child. `max_rss` is in bytes; `out_of_memory` only if the cgroup counted a kill."""

    exit_code: int | None
    signal: int | None
    core_dumped: bool
    max_rss: int | None
    out_of_memory: bool = False

    @property
    def status_lost(self) -> bool:
        """Whether someone else has reaped it: how it died is not known, and that is never a success."""
        return self.exit_code is None and self.signal is None

    def __str__(self) -> str:
        if self.signal is not None:
            text = f"killed by {signal_name(self.signal)} (signal {self.signal})"
            return text + ", out of memory" * self.out_of_memory + ", core dumped" * self.core_dumped
        if self.exit_code is not None:
            return f"left with exit code {self.exit_code}"
        return "gone, its exit status lost to another reaper"


@dataclass(frozen=True, slots=True)
class DeadWorker:
    """A worker that is no more: all that booking its run needs."""

    name: str
    slot: int
    pid: int
    death: Death
    record: Record | None
    kill: Kill | None
    stack: str | None

    @property
    def left_as_it_should(self) -> bool:
        """Whether it left by itself, holding nothing, having said so."""
        return self.death.exit_code == 0 and self.record is not None and self.record.phase is Phase.leaving


def signal_name(number: int) -> str:
    """Return a signal's name, also for those that have none of their own."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}" if number >= signal.SIGRTMIN else f"signal {number}"


def death_of(status: int, max_rss_kib: int) -> Death:
    """Return the death that a wait status tells of."""
    if os.WIFSIGNALED(status):
        return Death(None, os.WTERMSIG(status), os.WCOREDUMP(status), max_rss_kib * 1024)
    return Death(os.WEXITSTATUS(status), None, False, max_rss_kib * 1024)


STATUS_LOST = Death(None, None, False, None)


def ended_itself(death: Death, record: Record, at: float, grace: float) -> bool:
    """Whether a worker that died at about `at` was killed by its own timer, and not by somebody."""
    return death.signal == signal.SIGKILL and record.phase is Phase.running and at >= record.kills_itself_at(grace)


def outcome_of(claim: Claim, dead: DeadWorker, default_wait: timedelta) -> Outcome:
    """Return how the run that `dead` still held under `claim` ended."""
    number = int(claim.name.rpartition(":")[2])
    record = dead.record if dead.record is not None and dead.record.claim == number else None
    wait = default_wait if record is None else timedelta(seconds=min(max(record.retry_in, 0.0), 10 * 365 * 86400.0))
    error = _error(dead)
    booked = Outcome(Ended.crashed, wait=wait, error=error, stack=dead.stack, max_rss=dead.death.max_rss)
    if dead.kill is None and dead.death.exit_code == 0 and record is not None and record.phase is Phase.claiming:
        # It left before it knew that it had claimed this: none of the job's code has run.
        return _with(booked, Ended.interrupted, "interrupted: its worker left before it was started")
    if dead.kill is None and _was_still_finishing(dead.record, number - 1):
        # Claimed with the finish of the run before, whose doing it may be: this one had not begun.
        return _with(booked, Ended.interrupted, f"interrupted: its worker was gone before it was started ({dead.death})")
    if dead.kill is None:
        return _with(booked, Ended.crashed, f"crashed: {dead.death}")
    if dead.kill.claim != number:
        # A kill that was meant for another run hit this one: it is not to blame.
        return _with(booked, Ended.interrupted, "interrupted: its worker was killed for an earlier run")
    match dead.kill.reason:
        case "max_runtime":
            return _with(booked, Ended.overran, "killed at its max runtime")
        case "lease":
            return _with(booked, Ended.lost, "killed: its lease could no longer be kept")
        case "drain":
            return _with(booked, Ended.interrupted, "killed by a drain")
        case "cancel":
            return _with(booked, Ended.cancelled, "cancelled while it ran, and killed")
        case reason:
            return _with(booked, Ended.crashed, f"killed: {dead.kill.detail or reason}")


def _was_still_finishing(record: Record | None, claim: int) -> bool:
    return record is not None and record.phase is Phase.finishing and record.claim == claim


def _error(dead: DeadWorker) -> dict[str, Any]:
    death = dead.death
    error: dict[str, Any] = {"message": str(death)}
    if death.signal is not None:
        error |= {"signal": signal_name(death.signal), "signal_number": death.signal, "core_dumped": death.core_dumped}
    if death.exit_code is not None:
        error["exit_code"] = death.exit_code
    error["killed_by"] = f"supervisor ({dead.kill.reason})" if dead.kill is not None else None
    if dead.kill is not None and dead.kill.detail:
        error["detail"] = dead.kill.detail
    error["out_of_memory"] = death.out_of_memory
    return error


def _with(outcome: Outcome, ended: Ended, summary: str) -> Outcome:
    return Outcome(ended, outcome.wait, outcome.final, None, outcome.error, summary, outcome.stack, outcome.max_rss)
