"""What a worker is given at its birth: the one value that crosses the fork."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from fencepost.board import Board
from fencepost.settings import Settings


@dataclass(frozen=True, slots=True)
class WorkerStart:
    """All that a worker knows of its supervisor.

    `line` wakes it, and ends when the supervisor does. `note` and `stacks` are descriptors of anonymous files that both
    share: into `note` the worker writes what it found at its start, into `stacks` where its threads are. `memory` is what
    the supervisor had at the fork, in bytes: more than that is the worker's own.
    """

    settings: Settings
    slot: int
    name: str
    board: Board
    line: socket.socket
    note: int
    stacks: int
    memory: int


def application_name(worker: str) -> str:
    """Return what the sessions of a worker are called on the server: by this they are found and ended after its death."""
    return f"fencepost {worker}"


def claim_name(worker: str, claim: int) -> str:
    """Return what `locked_by` says of the `claim`-th claim of a worker: never the same twice, on any machine."""
    return f"{worker}:{claim}"
