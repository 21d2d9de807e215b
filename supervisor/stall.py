"""Be ended by the kernel if this process stalls, and the workers with it (protocol, rule 13).

A supervisor that is stopped, swapped out or blocked can't kill the runs whose leases it no longer keeps, while its workers live
on. So at each tick a timer of the kernel's is set to just before the first of their leases could end; whoever does not come
back in time to put it off is killed, and the workers by their parent-death signal.

The margin (protocol, rule 10) is what there is between a run's deadline and the end of its lease. In its first half a
supervisor that comes late still holds its runs and asks (rule 12); then the timer ends it; the rest is for everything to be
gone.
"""

from __future__ import annotations

import structlog

from fencepost.board import BUSY, Phase, Record, boottime
from fencepost.deadline import Deadline
from fencepost.settings import Settings
from fencepost.supervisor.state import State

log = structlog.get_logger()

HOLDS = {*BUSY, Phase.claiming}
"""In these phases a worker has a lease, or may be given one at any moment."""


class Stall:
    """The timer, put off at each tick."""

    def __init__(self) -> None:
        self._deadline: Deadline | None = None
        try:
            self._deadline = Deadline()
        except OSError as error:
            log.warning(
                "the kernel gives no timer: if this process stalls, its workers go on past their leases", error=str(error)
            )

    def put_off(self, state: State) -> None:
        """Put the end off for as long as no lease that is held, or may be taken from now on, could have ended."""
        if self._deadline is not None:
            held = [(child.kept, child.record()) for child in state.children()]
            self._deadline.at(ends_at(held, boottime(), state.settings))

    def off(self) -> None:
        """Let nothing happen any more: no worker is left."""
        if self._deadline is not None:
            self._deadline.off()


def ends_at(held: list[tuple[tuple[int, float], Record | None]], now: float, settings: Settings) -> float:
    """Return until when, in seconds of CLOCK_BOOTTIME, this process may be away.

    `held` is of each child the claim that the last answered heartbeat was for, with when that was sent, and its record. What
    a record says can bring the end nearer, to half a margin from now, and not put it off: a claim that begins later has its
    lease from then. One that can't be read just now may be of any lease.
    """
    late = settings.margin / 2
    first = now
    for (claim, kept_at), record in held:
        if record is None:
            first = float("-inf")
        elif record.phase in HOLDS:
            since = max(record.claimed_at, kept_at) if record.claim == claim else record.claimed_at
            first = min(first, since)
    # The tick that is now has looked at all of them: what is over is being killed, and must not take everybody along.
    return max(first + settings.holds_for, now) + late
