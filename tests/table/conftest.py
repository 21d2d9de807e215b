"""Fixtures of the table's tests: many and quick, so they share one database, emptied before each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from psycopg import Connection

from support.databases import END_SESSIONS, Database
from support.jobs import Jobs
from support.servers import Server
from support.verbs import Verbs
from support.waiting import wait_until

MANY = "select count(*) > 1000 from (select from fencepost.jobs limit 1001) counted"
TRUNCATE = """
    truncate fencepost.jobs, fencepost.job_runs, fencepost.supervisors, test.marks, test.rows restart identity cascade
"""
DELETE = """
    delete from fencepost.job_runs;
    delete from fencepost.jobs;
    delete from fencepost.supervisors;
    delete from test.rows;
    select setval(pg_get_serial_sequence('fencepost.jobs', 'id'), 1, false)
"""
"""Quicker where there is little, and there mostly is."""


@pytest.fixture(scope="session")
def shared_database(server: Server, migrated_database: Callable[[Server], Database]) -> Iterator[Database]:
    """The database that the table's tests share."""
    created = migrated_database(server)
    yield created
    created.drop()


@pytest.fixture
def database(shared_database: Database) -> Iterator[Database]:
    """The shared database, emptied. A test that alters more than rows takes `fresh_database`."""
    yield shared_database
    others = f"{END_SESSIONS} and pid <> pg_backend_pid()"
    wait_until(lambda: shared_database.value(others, [shared_database.name]) == 0, what="the end of the test's sessions")
    shared_database.execute(TRUNCATE if shared_database.value(MANY) else DELETE)


@pytest.fixture
def fresh_database(server: Server, create_database: Callable[[Server], Database]) -> Database:
    """A migrated database of the test's own, for settings, roles and changes of the schema."""
    return create_database(server)


@pytest.fixture
def jobs(database: Database) -> Jobs:
    """The queue of `database`."""
    return Jobs(database)


@pytest.fixture
def connect(database: Database) -> Iterator[Callable[..., Connection]]:
    """Open connections as the worker's role, in autocommit unless told otherwise; all are closed with the test."""
    opened: list[Connection] = []

    def open_one(**arguments: object) -> Connection:
        opened.append(database.worker_conn(**arguments))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture
def verbs(connect: Callable[..., Connection]) -> Verbs:
    """The table's verbs, as the worker's plain role sends them."""
    return Verbs(connect())


@pytest.fixture
def other_verbs(connect: Callable[..., Connection]) -> Verbs:
    """The same in another session."""
    return Verbs(connect())
