"""Fixtures that all tests share. A real server for the run, and a database of its own for each test."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql

sys.path.insert(0, str(Path(__file__).parent))

from fencepost.jobs.roles import Roles
from support import nursery
from support.databases import Database
from support.jobs import Jobs
from support.processes import Supervisor
from support.proxy import Proxy
from support.servers import Installation, Server, new_data, temporary_folder
from support.tls import TlsProxy

# What the shell says of a database, of Fencepost or of buffers must not decide how a test ends.
OF_THE_SHELL = ("FENCEPOST_", "PG", "DATABASE_URL", "PYTHONUNBUFFERED")
for name in [name for name in os.environ if name.startswith(OF_THE_SHELL)]:
    del os.environ[name]
# Nor that it has started the run in the background, where Ctrl-C is ignored: programs would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

MIGRATED = "migrated"
"""The template of a migrated database, on each server that has needed one."""


@pytest.fixture(scope="session", autouse=True)
def _nursery() -> Iterator[None]:
    yield
    nursery.close()


@pytest.fixture(scope="session")
def installation() -> Iterator[tuple[Installation, Path]]:
    """PostgreSQL's programs, and the data of a server that was never started."""
    folder = temporary_folder(None)
    # Entered by the server's user, who reads the programs here if it can't where they are.
    folder.chmod(0o755)
    try:
        chosen = Installation.chosen(folder)
        yield chosen, new_data(chosen, folder)
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def server(installation: tuple[Installation, Path]) -> Iterator[Server]:
    """The server of this run. Tests that stop, kill or configure one take `own_server`."""
    running = Server.new(*installation)
    try:
        running.start()
        yield running
    finally:
        running.remove()


@pytest.fixture
def start_server(installation: tuple[Installation, Path]) -> Iterator[Callable[..., Server]]:
    """Start servers of the test's own, with settings of postgresql.conf as keywords."""
    running: list[Server] = []

    def start(**settings: str) -> Server:
        running.append(Server.new(*installation, **settings))
        running[-1].start()
        return running[-1]

    yield start
    for one in running:
        one.remove()


@pytest.fixture
def start_standby() -> Iterator[Callable[[Server], Server]]:
    """Start standbys of the test's own, each of a server that runs."""
    running: list[Server] = []

    def start(primary: Server) -> Server:
        running.append(Server.standby_of(primary))
        running[-1].start()
        return running[-1]

    yield start
    for one in running:
        one.remove()


@pytest.fixture
def own_server(start_server: Callable[..., Server]) -> Server:
    """A server that this test may stop, kill and configure."""
    return start_server()


@pytest.fixture(scope="session")
def migrated_database() -> Callable[[Server], Database]:
    """Create a migrated database on a server; whoever does drops it."""
    return copy_of_the_template


@pytest.fixture
def create_database() -> Iterator[Callable[[Server], Database]]:
    """Create migrated databases on servers of the test's choice; all are dropped with the test."""
    created: list[Database] = []

    def create(on: Server) -> Database:
        created.append(copy_of_the_template(on))
        return created[-1]

    yield create
    for one in created:
        if one.server.is_running:
            one.drop()


@pytest.fixture
def database(server: Server) -> Iterator[Database]:
    """A migrated database, in which a plain role has the documented rights."""
    created = copy_of_the_template(server)
    yield created
    created.drop()


@pytest.fixture
def empty_database(server: Server) -> Iterator[Database]:
    """A database without Fencepost's tables, in which a plain role has no rights."""
    created = Database.create(server)
    yield created
    created.drop()


@pytest.fixture
def roles(server: Server) -> Iterator[Roles]:
    """Names for the roles that `fencepost migrate --roles` makes, gone after the database. Named first by tests."""
    mark = os.urandom(4).hex()
    names = Roles(f"owner {mark}", f"worker_{mark}", f"Enqueuer-{mark}", f'job"{mark}')
    yield names
    with Database(server, "postgres").conn() as conn:
        for name in names.names():
            conn.execute(sql.SQL("drop role if exists {}").format(sql.Identifier(name)))


@pytest.fixture
def own_database(own_server: Server, create_database: Callable[[Server], Database]) -> Database:
    """A migrated database on a server that this test may stop and kill."""
    return create_database(own_server)


@pytest.fixture
def jobs(database: Database) -> Jobs:
    """The queue of `database`."""
    return Jobs(database)


@pytest.fixture
def start_tls(tmp_path: Path) -> Iterator[Callable[[int], TlsProxy]]:
    """Put TLS before the servers of ports of this machine."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    started: list[TlsProxy] = []

    def start(port: int) -> TlsProxy:
        started.append(TlsProxy(port, tmp_path))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def proxy(database: Database) -> Iterator[Proxy]:
    """A proxy before `database`. A test names it before the supervisor, which would miss its database as it leaves."""
    made = Proxy(database.server.port)
    yield made
    made.close()


@pytest.fixture
def start_supervisor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Supervisor]]:
    """Start supervisors on `database` (or `url=…`) with settings as keywords; all are ended with the test."""
    started: list[Supervisor] = []

    def start(url: str | None = None, **settings: Any) -> Supervisor:
        folder = tmp_path / f"supervisor-{len(started) + 1}"
        folder.mkdir()
        if url is None:
            url = request.getfixturevalue("database").worker_url
        started.append(Supervisor(url, folder, **settings))
        return started[-1]

    # Made before the first supervisor, so that it is dropped after the last one's end.
    if not {"own_server", "own_database", "start_server", "empty_database"} & set(request.fixturenames):
        request.getfixturevalue("database")
    yield start
    failures = []
    for one in started:
        try:
            one.stop()
        except AssertionError as error:
            failures.append(str(error))
        # Captured: seen only if the test has failed.
        print(f"---- the log of supervisor {one.pid} ends:\n{one.tail(60)}")
    assert not failures, "\n".join(failures)


def copy_of_the_template(on: Server) -> Database:
    """Return a copy of the migrated template of a server, which is made for the first."""
    template = Database(on, MIGRATED)
    with Database(on, "postgres").conn() as conn:
        there = conn.execute("select exists (select from pg_database where datname = %s)", [MIGRATED]).fetchone()
        if not there or not there[0]:
            conn.execute(f"create database {MIGRATED}")
            template.migrate()
            template.add_test_tables()
            template.owner.close()
    created = Database.create(on, MIGRATED)
    created.grant()
    return created
