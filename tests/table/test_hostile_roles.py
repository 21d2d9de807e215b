"""What a role or a database sets by default does not change what the queue's sessions do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from psycopg import sql

from fencepost import enqueue
from fencepost.settings import Settings, read
from fencepost.worker.session import Session
from support.databases import Database
from support.jobs import Jobs
from support.verbs import Verbs

DEFAULTS = {
    "datestyle": "German, DMY",
    "intervalstyle": "iso_8601",
    "client_encoding": "latin1",
    "timezone": "Asia/Tokyo",
    "default_transaction_isolation": "serializable",
    "search_path": "",
    "standard_conforming_strings": "on",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
}


@pytest.fixture
def hostile_database(fresh_database: Database) -> Database:
    """A database whose worker's role has its own ideas of everything."""
    for name, value in DEFAULTS.items():
        fresh_database.owner.execute(
            sql.SQL("alter role {} set {} = {}").format(
                sql.Identifier(fresh_database.worker), sql.Identifier(name), sql.Literal(value)
            )
        )
    return fresh_database


@pytest.fixture
def open_session(hostile_database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Session]]:
    """Open a worker's sessions, as the worker does."""
    monkeypatch.setenv("DATABASE_URL", hostile_database.worker_url)
    settings: Settings = read()
    opened: list[Session] = []

    def start() -> Session:
        opened.append(Session(settings, f"w{len(opened)}"))
        return opened[-1]

    yield start
    for session in opened:
        session.drop_claims()
        session._pool.close()


def test_a_claim_is_read_whatever_the_roles_formats_are(
    open_session: Callable[[], Session], hostile_database: Database
) -> None:
    """A claim that can't be read has been counted, and would run for no one, again and again."""
    with hostile_database.conn() as conn:
        due = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
        job = enqueue(conn, "ok", {"a": "€ 😀"}, tenant="Ω", run_at=due, max_runtime=timedelta(days=3, seconds=4.5))
    verbs = Verbs(open_session().claims())
    claimed = verbs.must_claim()
    assert (claimed.id, claimed.run_at, claimed.max_runtime) == (job, due, timedelta(days=3, seconds=4.5))
    assert (claimed.payload, claimed.tenant) == ('{"a": "€ 😀"}', "Ω")
    assert verbs.finish(claimed, "failed", wait=timedelta(days=1, seconds=1.5), summary="€ 😀", error={"message": "€ 😀"})
    row = Jobs(hostile_database)[job]
    assert (row.status, row.last_error) == ("queued", "€ 😀")


def test_claims_do_not_fail_on_each_other_under_a_stricter_isolation(
    open_session: Callable[[], Session], hostile_database: Database
) -> None:
    """Rule 1: under serializable they fail with 40001 as soon as another session has claimed."""
    hostile_database.execute("insert into fencepost.jobs (kind) select 'ok' from generate_series(1, 200)")
    together = threading.Barrier(4)

    def drain(session: Session) -> list[int]:
        verbs = Verbs(session.claims())
        together.wait()
        mine = []
        while (claimed := verbs.claim()) is not None:
            mine.append(claimed.id)
            assert verbs.finish(claimed)
        return mine

    with ThreadPoolExecutor(4) as threads:
        claimed = [one for each in threads.map(drain, [open_session() for _ in range(4)]) for one in each]
    assert sorted(claimed) == list(range(1, 201))
