"""A queue to have accidents with: what its table is asked, and how the time of its locks is made to pass."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import psycopg
from peers import peer
from peers.peer import Trouble

HERE = Path(__file__).parent


class TooLate(Trouble):
    """The accident came when the innocents were done: the machine was busy, or the poison waited behind them. Try again."""


@dataclass(frozen=True, kw_only=True)
class Peer(peer.Peer):
    """One adapter."""

    section = "crash"

    several: bool
    """Whether its worker is more than one process."""
    rescue: str
    jobs: str
    age: str = ""


@dataclass(frozen=True)
class Place(peer.Place):
    """Where one trial of a peer happens."""

    peer: Peer

    def enqueue(self, *jobs: dict[str, object]) -> None:
        """Enqueue jobs in their order."""
        self.run([*self.peer.program, "enqueue"], json.dumps(jobs))

    def states(self) -> dict[str, tuple[str, str]]:
        """Ask its table for the state of each job, and the attempts that it counts."""
        with psycopg.connect(self.database, autocommit=True) as conn:
            rows = conn.execute(self.peer.jobs.encode()).fetchall()
        # Where the table keeps no more than a printed dictionary, the name is found in it.
        names = ((re.search(r"[LPQ]\d?(?=')|^[LPQ]\d?$", str(name)), state, attempts) for name, state, attempts in rows)
        return {found[0]: (state, str(attempts)) for found, state, attempts in names if found}

    def age(self) -> None:
        """Put the clocks of locks forward, where no setting makes them shorter."""
        if self.peer.age:
            with psycopg.connect(self.database, autocommit=True) as conn:
                conn.execute(self.peer.age.encode())


def all_peers() -> list[Peer]:
    """Return all peers, Fencepost first."""
    return Peer.all(HERE / "adapters")
