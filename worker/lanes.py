"""Where to look for work, and from which key on.

The index of waiting jobs still holds the entries of claimed ones while a transaction is open elsewhere, so a search from its
start walks all of them. Each lane (queue and priority) is therefore searched from behind the last key taken there. What
lands below that key, a retry or a late commit, is found by looking at the whole again now and then: by time, never by
count, and for no more than a thirtieth of the worker's time, of which some can be saved up.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from fencepost.jobs.claim import Claim, Lane

ALL = "*"
SHARE_OF_TIME = 1 / 30
SAVED_AT_MOST = 0.25
"""Seconds of looking that can be saved up: what lands elsewhere just after a costly look must not wait for the next."""
WHILE_BUSY = 0.5
"""Seconds between two looks at the whole while there is work behind the keys."""

KEPT_AT_MOST = 1000
"""Lanes that are remembered: priorities can be as many as there are jobs."""

A_MOMENT = 0.001

_START = datetime.min.replace(tzinfo=UTC)


class Lanes:
    """The lanes of the queues that this worker serves, in order of preference."""

    def __init__(self, queues: tuple[str, ...]) -> None:
        self.queues = queues
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._looked_at = float("-inf")
        self._saved, self._saved_at = SAVED_AT_MOST, 0.0

    @property
    def are_known(self) -> bool:
        """Whether there is any lane to search."""
        return bool(self._lanes)

    def in_order(self) -> list[Lane]:
        """Return the lanes: by the queues' order, then by priority. Among queues that share a place (`*`), oldest first."""
        return sorted(
            self._lanes.values(),
            key=lambda lane: (self._place(lane.queue), lane.priority, lane.after_run_at, lane.queue),
        )

    def took(self, claim: Claim) -> None:
        """Search from behind `claim` on."""
        lane = self._lanes.get((claim.queue, claim.priority))
        if lane is not None:
            key = (claim.queue, claim.priority)
            self._lanes[key] = lane._replace(after_run_at=claim.run_at, after_id=claim.id)

    def may_look_at_all(self, now: float, *, busy: bool) -> bool:
        """Whether it is time to look at the whole: `busy` if the last search found something. `now` is in seconds."""
        if busy and now - self._looked_at < WHILE_BUSY:
            return False
        return self._savings(now) > 0

    def may_look_in(self, now: float) -> float:
        """Return how many seconds it is until the whole may be looked at again, having found nothing."""
        return max(0.0, -self._savings(now)) / SHARE_OF_TIME + A_MOMENT

    def look_at_all(self, lanes: Iterable[tuple[str, int]]) -> None:
        """Search each of `lanes` from its start. Those that are empty now are kept, for what comes there next."""
        if len(self._lanes) > KEPT_AT_MOST:
            self._lanes.clear()
        self._lanes |= {(queue, priority): Lane(queue, priority, _START, 0) for queue, priority in lanes}

    def looked_at_all(self, now: float, cost: float) -> None:
        """Note that a look at the whole ended at `now` and took `cost` seconds."""
        self._looked_at = now
        self._saved, self._saved_at = self._savings(now) - cost, now

    def _savings(self, now: float) -> float:
        return min(SAVED_AT_MOST, self._saved + (now - self._saved_at) * SHARE_OF_TIME)

    def _place(self, queue: str) -> int:
        if queue in self.queues:
            return self.queues.index(queue)
        return self.queues.index(ALL) if ALL in self.queues else len(self.queues)
