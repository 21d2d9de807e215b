"""What is known of all leases, from look to look.

No index knows when leases end, since each heartbeat would have to change it. So each run is read once, when it has gone on
for a while, and again when the end that its lease had then has come: a look costs what began lately and the few whose time it
is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fencepost.jobs.look import Asked, Read
from fencepost.jobs.sweep import Lease
from fencepost.supervisor.database import Conn

LOOK_AT_ALL_EVERY = 60.0
"""Seconds between looks at all leases: the server's clock may have been set back, or a claim's commit have taken long."""

LOOK_FROM_AGE = 10.0
"""Seconds after which a run is looked at, at most: its claim is committed by then, and most runs are over."""


@dataclass(slots=True)
class Leases:
    """What is known of all leases. Times are ours, `mark` and `read_at` are the server's.

    `known` are those of runs that were read and may still go on, by job, as they stood then. `expired` are those of them that
    had run out, and since when that has been seen, and `by` is the connection that saw them. `apart`: not with work in one
    statement, since that has failed.
    """

    age: float = LOOK_FROM_AGE
    by: Conn | None = None
    mark: datetime | None = None
    all_at: float = float("-inf")
    read_at: tuple[datetime, float] | None = None
    apart: bool = False
    known: dict[int, Lease] = field(default_factory=dict)
    expired: dict[Lease, float] = field(default_factory=dict)

    @property
    def looked_at(self) -> float:
        """When we looked last."""
        return self.read_at[1] if self.read_at is not None else float("-inf")

    def asks(self, now: float) -> Asked:
        """Return what to read next."""
        age = timedelta(seconds=self.age)
        if self.read_at is None or now - self.all_at >= LOOK_AT_ALL_EVERY:
            return Asked(None, age, [])
        server, ours = self.read_at
        servers_now = server + timedelta(seconds=now - ours)
        return Asked(self.mark, age, [lease.id for lease in self.known.values() if lease.locked_until <= servers_now])

    def learns(self, asked: Asked, read: Read, now: float) -> None:
        """Take in what was read."""
        if asked.mark is None:
            self.all_at = now
        elif self.read_at is not None and read.at < self.read_at[0]:
            # The server's clock was set back: what begins from now on may lie before the mark.
            self.all_at = float("-inf")
        for job in asked.ids:
            del self.known[job]
        self.known.update((lease.id, lease) for lease in read.leases)
        self.mark, self.read_at = read.mark, (read.at, now)
        # Whatever had run out was asked for: what is not among it any more was prolonged, or has ended.
        self.expired = {lease: self.expired.get(lease, now) for lease in read.leases if lease.locked_until <= read.at}

    def forget(self, by: Conn) -> None:
        """Begin anew on another connection: of another server perhaps, with another clock, that may know less.

        Which duty met the end of the connection before does not matter.
        """
        self.by, self.all_at = by, float("-inf")
        self.expired.clear()

    def ripe(self, now: float, patience: float) -> list[Lease]:
        """Return those that have been seen expired for long enough."""
        return [lease for lease, since in self.expired.items() if now - since >= patience]

    def take_out(self, leases: list[Lease]) -> None:
        """Forget that these were seen expired: where they still are, that begins anew."""
        for lease in leases:
            self.expired.pop(lease, None)
