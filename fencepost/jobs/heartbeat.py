"""Prolong the leases of busy workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from psycopg import AsyncConnection

from fencepost.jobs.sql import statement


@dataclass(frozen=True, slots=True)
class Beat:
    """A run whose lease is to be prolonged; `progress` is JSON text, or None to leave it as it is."""

    job_id: int
    fence: int
    name: str
    progress: str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of it: renewed, locked by someone just now, or lost."""

    state: Literal["renewed", "locked", "lost"]
    cancel_requested: bool


async def heartbeat(conn: AsyncConnection[Any], schema: str, beats: Sequence[Beat], lease: timedelta) -> dict[str, Answer]:
    """Prolong the leases of `beats` in one statement, and answer for each by the name of its claim."""
    cursor = await conn.execute(
        statement("heartbeat", schema),
        {
            "ids": [beat.job_id for beat in beats],
            "fences": [beat.fence for beat in beats],
            "names": [beat.name for beat in beats],
            "progress": [beat.progress for beat in beats],
            "lease": lease,
        },
    )
    return {name: Answer(state, cancel_requested) async for name, state, cancel_requested in cursor}
