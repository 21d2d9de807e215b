"""What the sweep knows of leases, told of them by a server whose clock is its own."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from fencepost.jobs.look import Asked, Read
from fencepost.jobs.sweep import Lease
from fencepost.supervisor.leases import LOOK_AT_ALL_EVERY, Leases

PATIENCE = 20.0
AGE = timedelta(seconds=10)


class Server:
    """A table of running jobs, and a clock that goes with ours until it is set."""

    def __init__(self) -> None:
        self.ours = 1000.0
        self.clock = datetime(2026, 1, 1, tzinfo=UTC)
        self.runs: dict[int, tuple[datetime, Lease]] = {}
        self.asked: list[Asked] = []
        self.leases = Leases()

    def pass_by(self, seconds: float) -> None:
        """Let time pass, for both."""
        self.ours += seconds
        self.clock += timedelta(seconds=seconds)

    def claim(self, job: int, lease: float = 60.0) -> None:
        """Have a run begin."""
        self.runs[job] = (self.clock, Lease(job, 1, f"w:{job}", self.clock + timedelta(seconds=lease)))

    def beat(self, job: int, lease: float = 60.0) -> None:
        """Prolong its lease."""
        began, was = self.runs[job]
        self.runs[job] = (began, replace(was, locked_until=self.clock + timedelta(seconds=lease)))

    def look(self) -> list[int]:
        """Have the sweep look once; return of which jobs it was told."""
        asked = self.leases.asks(self.ours)
        self.asked.append(asked)
        found = [lease for job, (began, lease) in self.runs.items() if job in asked.ids or self._in_range(asked, began)]
        self.leases.learns(asked, Read(self.clock, self.clock - AGE, found), self.ours)
        return [lease.id for lease in found]

    def look_for(self, seconds: int) -> None:
        """Have it look each second."""
        for _ in range(seconds):
            self.pass_by(1)
            self.look()

    def ripe(self) -> list[int]:
        """Return which jobs it would take back now."""
        return [lease.id for lease in self.leases.ripe(self.ours, PATIENCE)]

    def _in_range(self, asked: Asked, began: datetime) -> bool:
        return asked.mark is None or asked.mark < began <= self.clock - AGE


def test_a_run_is_read_once_when_it_is_old_enough_and_again_when_its_lease_is_over() -> None:
    """And at each look from then on, until it is taken back or has ended."""
    server = Server()
    server.look()
    server.claim(1)
    read_at = []
    for second in range(1, 65):
        server.pass_by(1)
        if server.look():
            read_at.append(second)
    # In between all are looked at once.
    assert read_at == [10, 60, 61, 62, 63, 64]
    del server.runs[1]
    server.pass_by(1)
    assert server.look() == []
    assert server.asked[-1].ids == [1]
    server.pass_by(1)
    server.look()
    assert (server.asked[-1].ids, server.leases.known, server.leases.expired) == ([], {}, {})


def test_what_stays_expired_for_a_heartbeat_and_its_limit_is_ripe() -> None:
    """Rule 14, and no later: lease, heartbeat, its limit and a sweep."""
    server = Server()
    server.look()
    server.claim(1)
    server.look_for(60 + int(PATIENCE) - 1)
    assert server.ripe() == []
    server.look_for(1)
    assert server.ripe() == [1]


def test_a_lease_that_is_prolonged_is_another() -> None:
    """Its holder lives: the time since it was first seen expired does not count."""
    server = Server()
    server.claim(1)
    server.look()
    server.look_for(75)
    assert list(server.leases.expired) == [server.runs[1][1]]
    server.beat(1, lease=1)
    server.look_for(10)
    assert server.ripe() == []
    server.look_for(12)
    assert server.ripe() == [1]


def test_a_server_whose_clock_is_set_forward_costs_no_lease() -> None:
    """All of them are over at once, and each is saved by its next heartbeat."""
    server = Server()
    server.claim(1)
    server.look()
    server.look_for(15)
    server.clock += timedelta(hours=1)
    server.look_for(14)
    assert list(server.leases.expired) == [server.runs[1][1]]
    server.beat(1)
    server.look_for(10)
    assert (server.ripe(), server.leases.expired) == ([], {})


def test_after_the_servers_clock_was_set_back_all_are_looked_at() -> None:
    """What is claimed from then on lies before the mark."""
    server = Server()
    server.look()
    server.look_for(15)
    server.clock -= timedelta(hours=1)
    server.claim(1, lease=5)
    server.look_for(2)
    assert server.asked[-1].mark is None
    assert list(server.leases.known) == [1]
    server.look_for(5 + int(PATIENCE))
    assert server.ripe() == [1]


def test_another_connection_may_lead_to_another_server() -> None:
    """With another clock, and leases that end before the mark: nothing that was seen before counts."""
    server = Server()
    server.claim(1, lease=5)
    server.look()
    server.look_for(10)
    assert server.leases.expired
    server.leases.forget(object())  # type: ignore[arg-type]  # only told apart from another
    server.clock -= timedelta(minutes=1)
    server.look()
    assert (server.asked[-1].mark, server.leases.expired) == (None, {})
    server.look_for(60 + int(PATIENCE))
    assert server.ripe() == [1]


def test_all_are_looked_at_now_and_then() -> None:
    """A claim whose commit took longer than the mark trails is found so."""
    server = Server()
    server.look()
    server.look_for(20)
    began = server.clock - timedelta(minutes=5)
    server.runs[1] = (began, Lease(1, 1, "w:1", server.clock))
    server.look_for(int(LOOK_AT_ALL_EVERY) - 20)
    assert list(server.leases.known) == [1]
