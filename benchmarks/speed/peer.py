"""A queue to measure: how it works through jobs, and how many are left to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from peers import peer

ADAPTERS = Path(__file__).with_name("adapters")

BARE, SINGLE, PROCESS, BATCHES = "bare SQL", "job by job", "a process a job", "batches"
"""The manners of working."""


@dataclass(frozen=True, kw_only=True)
class Peer(peer.Peer):
    """One adapter. A worker's command is told `{n}`, how many jobs it runs at a time, and `{programs}`, where pgbench is."""

    section = "speed"

    manner: str
    batches: str
    """In words: what it claims and acknowledges together."""
    crash: str
    """In words: what it costs that a worker is killed."""
    left: str
    """Asks the database how many jobs are not done."""
    pace: float = 1.0
    """About how quick it is against bare SQL: so many jobs it is given, and so its runs take about as long as others."""
    login: str = ""
    """As whom its worker connects, if not as the superuser."""
    throughput: bool = True
    """Whether it runs the jobs that do nothing."""
    latency: bool = True
    """Whether its jobs can tell when they start."""


def all_peers() -> list[Peer]:
    """Return all of them, Fencepost first."""
    return Peer.all(ADAPTERS)
