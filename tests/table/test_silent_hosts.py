"""A database of several hosts, the first of which takes connects and never answers, as a server that hangs does."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from fencepost.settings import Settings, read
from fencepost.supervisor.database import Away, Conn, Link
from fencepost.worker.session import Session
from support.databases import Database


@pytest.fixture
def settings(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """Settings that name the silent host first."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"127.0.0.1:{silent.getsockname()[1]},127.0.0.1:{database.server.port}"
        url = f"postgresql://{database.worker}@{hosts}/{database.name}?connect_timeout=2"
        monkeypatch.setenv("DATABASE_URL", url)
        yield read()


def test_a_duty_with_less_patience_than_a_connect_takes_gets_to_the_next_host(settings: Settings) -> None:
    """C45: it gives up in time, each time, and the connect goes on: else each try would begin with the silent host again."""

    async def one(conn: Conn) -> Any:
        cursor = await conn.execute("select 1")
        return await cursor.fetchone()

    async def reached() -> float:
        link = Link(settings, "duty", "s1", 0.3)
        began = time.monotonic()
        while time.monotonic() - began < 6:
            asked_at = time.monotonic()
            with suppress(Away):
                assert await link.run(one) == (1,)
                break
            assert time.monotonic() - asked_at < 1.0
            await asyncio.sleep(0.05)
        await link.close()
        return time.monotonic() - began

    assert asyncio.run(reached()) < 4


def test_a_worker_gives_each_host_no_more_time_than_the_settings_say(settings: Settings) -> None:
    """C45: so that a failover from a server that hangs takes it seconds."""
    session = Session(settings, "w1")
    began = time.monotonic()
    assert session.claims().execute("select 1").fetchone() == (1,)
    assert time.monotonic() - began < 4
    session.drop_claims()
    session._pool.close()
