"""Keep the supervisor's row: who it is, and what each slot runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from datetime import timedelta
from importlib.metadata import version
from typing import Any

import psycopg
import structlog

from fencepost.board import BUSY
from fencepost.jobs.supervisors import deregister, register
from fencepost.supervisor.database import Away
from fencepost.supervisor.state import TRIAL, State
from fencepost.supervisor.tell import phase
from fencepost.supervisor.wake import look_for_what_was_not_told

log = structlog.get_logger()

VERSION = version("fencepost")
"""Read once: a full or slow disk must not hold up what is written each heartbeat."""


WRITE_AGAIN = 1.0
"""Seconds until the row is written again where the database was away."""


async def keep_row(state: State) -> None:
    """Write the row at each heartbeat's period, and when something in it has changed."""
    while True:
        pause = state.settings.heartbeat
        try:
            await write_row(state)
        except Away:
            pause = min(pause, WRITE_AGAIN)
        except psycopg.Error as error:
            log.warning("the supervisor's row was not written", error=str(error).strip())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await state.register_now.wait()
        state.register_now.clear()


async def write_row(state: State) -> None:
    """Write the row once."""
    settings = state.settings
    told = state.listening and state.wants_to_be_told
    row = {
        "name": state.name,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "version": VERSION,
        "kinds": state.kinds,
        "queues": list(settings.queues),
        "lease": timedelta(seconds=settings.lease),
        "heartbeat": timedelta(seconds=settings.heartbeat),
        "listening": state.listening,
        "told": told,
        "state": "draining" if state.draining else "paused" if state.paused else "running",
        "slots": json.dumps(slots(state)),
    }
    is_new = await state.duty.run(lambda conn: register(conn, settings.schema, row))
    was_told, state.told = state.told and not is_new, told
    if told and not was_told:
        state.spawn(look_for_what_was_not_told(state))


async def remove_row(state: State) -> None:
    """Remove the row: this supervisor is gone."""
    await state.duty.run(lambda conn: deregister(conn, state.settings.schema, state.name))


def slots(state: State) -> list[dict[str, Any]]:
    """Return what each slot does, as status shows it."""
    found = []
    for slot in state.slots:
        if slot.number == TRIAL:
            continue
        child = slot.child
        record = child.record() if child is not None else None
        entry: dict[str, Any] = {"slot": slot.number, "phase": "empty"}
        if child is not None:
            entry |= {"worker": child.name, "pid": child.pid}
            entry["phase"] = phase(child)
        if record is not None and child is not None and record.phase in BUSY:
            # A child can write anything there; what PostgreSQL can't hold must not cost us the row.
            kind = record.kind.replace("\0", "").encode(errors="replace").decode()
            entry |= {"job": record.job_id, "kind": kind, "attempt": record.attempt}
        found.append(entry)
    return found
