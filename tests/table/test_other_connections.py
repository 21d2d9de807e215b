"""A job's other connections: bound to its tenant they work as its transactions do, and a raw one sees and writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import django
import django.db
import psycopg
import pytest
import sqlalchemy
from django.conf import settings as django_settings
from psycopg import AsyncConnection, Connection
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from fencepost import Job, JobError, handler
from fencepost.testing import arun, run
from support.databases import Database

NOTES = """
    create table test.notes (tenant_id text not null default current_setting('app.tenant', true), note text not null);
    alter table test.notes enable row level security;
    alter table test.notes force row level security;
    create policy by_tenant on test.notes using (tenant_id = nullif(current_setting('app.tenant', true), ''));
    grant select, insert on test.notes to public;
    insert into test.notes values ('1', 'old'), ('2', 'old');
"""
SEEN = "select tenant_id, note from test.notes order by note"
WRITE = "insert into test.notes (note) values ('new')"
OF_TENANT_2 = [("2", "new"), ("2", "old")]


@pytest.fixture
def database(fresh_database: Database) -> Database:
    """A database with a table of tenants' notes."""
    fresh_database.execute(NOTES)
    return fresh_database


@pytest.fixture
def conn(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """The job's own connection."""
    monkeypatch.setattr("fencepost.handlers._handlers", {})
    with database.worker_conn(autocommit=False) as opened:
        yield opened


def by_psycopg(job: Job, url: str) -> list[Any]:
    with psycopg.connect(url) as conn:
        job.bind(conn)
        conn.execute(WRITE)
        return conn.execute(SEEN).fetchall()


def by_psycopg_in_autocommit(job: Job, url: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as conn, conn.transaction():
        job.bind(conn)
        conn.execute(WRITE)
        return conn.execute(SEEN).fetchall()


def by_sqlalchemy(job: Job, url: str, driver: str = "psycopg") -> list[Any]:
    engine = sqlalchemy.create_engine(url.replace("postgresql:", f"postgresql+{driver}:"), poolclass=NullPool)
    with engine.begin() as conn:
        job.bind(conn)
        conn.execute(sqlalchemy.text(WRITE))
        return [tuple(row) for row in conn.execute(sqlalchemy.text(SEEN))]


def by_a_session_of_sqlalchemy(job: Job, url: str) -> list[Any]:
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
    with Session(engine) as session, session.begin():
        job.bind(session)
        session.execute(sqlalchemy.text(WRITE))
        return [tuple(row) for row in session.execute(sqlalchemy.text(SEEN))]


def by_django(job: Job, url: str) -> list[Any]:
    with closing(django_connection(url)) as conn, django.db.transaction.atomic():
        job.bind(conn)
        with conn.cursor() as cursor:
            cursor.execute(WRITE)
            cursor.execute(SEEN)
            return cursor.fetchall()


def django_connection(url: str) -> Any:
    """Return Django's `connection`, as its users have it."""
    given = psycopg.conninfo.conninfo_to_dict(url)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    database = {"ENGINE": "django.db.backends.postgresql", **{name: str(given.get(key, "")) for name, key in names.items()}}
    if not django_settings.configured:
        django_settings.configure(DATABASES={"default": database})
        django.setup()
    django.db.connections["default"].settings_dict.update(database)
    return django.db.connection


async def by_psycopg_async(job: Job, url: str) -> list[Any]:
    async with await AsyncConnection.connect(url) as conn:
        await job.abind(conn)
        await conn.execute(WRITE)
        return await (await conn.execute(SEEN)).fetchall()


async def by_sqlalchemy_async(job: Job, url: str) -> list[Any]:
    engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"), poolclass=NullPool)
    async with engine.begin() as conn:
        await job.abind(conn)
        await conn.execute(sqlalchemy.text(WRITE))
        return [tuple(row) for row in await conn.execute(sqlalchemy.text(SEEN))]


async def by_a_session_of_sqlalchemy_async(job: Job, url: str) -> list[Any]:
    engine = create_async_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
    async with AsyncSession(engine) as session, session.begin():
        await job.abind(session)
        await session.execute(sqlalchemy.text(WRITE))
        return [tuple(row) for row in await session.execute(sqlalchemy.text(SEEN))]


WAYS = [by_psycopg, by_psycopg_in_autocommit, by_sqlalchemy, by_a_session_of_sqlalchemy, by_django]
ASYNC_WAYS = [by_psycopg_async, by_sqlalchemy_async, by_a_session_of_sqlalchemy_async]


@pytest.mark.parametrize("way", WAYS)
def test_a_bound_connection_has_the_tenant_of_its_job(conn: Connection, database: Database, way: Callable[..., Any]) -> None:
    """C72: what it writes is the tenant's and what it sees is no one else's; the tenant is gone with its transaction."""
    seen: list[Any] = []
    handler("one")(lambda job: seen.extend(way(job, database.worker_url)))
    ran = run(conn, "one", tenant=2)
    assert (ran.outcome, ran.error) == ("done", None)
    assert seen == OF_TENANT_2
    assert database.execute("select count(*) as rows from test.notes where tenant_id = '2'")[0].rows == 2


@pytest.mark.parametrize("way", ASYNC_WAYS)
def test_so_has_an_asynchronous_one(conn: Connection, database: Database, way: Callable[..., Any]) -> None:
    """C72: also one of a coroutine's."""
    seen: list[Any] = []

    @handler("one")
    async def one(job: Job) -> None:
        seen.extend(await way(job, database.worker_url))

    ran = run(conn, "one", tenant=2)
    assert (ran.outcome, ran.error) == ("done", None)
    assert seen == OF_TENANT_2


def test_bound_again_for_another_tenant_it_has_that_one(conn: Connection, database: Database) -> None:
    """One connection that a handler keeps over its jobs: the next transaction begins as nobody, and is bound anew."""
    seen: list[Any] = []
    with psycopg.connect(database.worker_url) as kept:

        @handler("one")
        def one(job: Job) -> None:
            with kept.transaction():
                seen.append(kept.execute(SEEN).fetchall())
                job.bind(kept)
                seen.append(kept.execute(SEEN).fetchall())

        for tenant in (1, 2):
            assert run(conn, "one", tenant=tenant).outcome == "done"
            kept.commit()
    assert seen == [[], [("1", "old")], [], [("2", "old")]]


def test_a_bound_connection_works_as_the_role_of_jobs(
    conn: Connection, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And has no other right than that role."""
    role = f"job_{database.name}"
    database.execute(f"create role {role}; grant {role} to {database.worker}; grant usage on schema test to {role}")
    monkeypatch.setenv("FENCEPOST_JOB_ROLE", role)
    seen: list[Any] = []

    @handler("one")
    def one(job: Job) -> None:
        with psycopg.connect(database.worker_url) as other:
            job.bind(other)
            seen.append(other.execute("select current_user::text").fetchone())

    try:
        assert run(conn, "one", tenant=1).error is None
        assert seen == [(role,)]
    finally:
        conn.rollback()
        database.execute(f"drop owned by {role}; drop role {role}")


def test_without_a_transaction_nothing_can_be_bound(conn: Connection, database: Database) -> None:
    """In autocommit the tenant would be gone with the statement that sets it: refused, and so is what is no connection."""
    said: list[str] = []

    @handler("one")
    def one(job: Job) -> None:
        engine = sqlalchemy.create_engine(database.worker_url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
        with psycopg.connect(database.worker_url, autocommit=True) as other, engine.connect() as alchemy:
            alchemy.execution_options(isolation_level="AUTOCOMMIT")
            for wrong in (other, alchemy, django_connection(database.worker_url), engine, None):
                with pytest.raises(JobError) as refused:
                    job.bind(wrong)
                said.append(str(refused.value))
        django.db.connection.close()

    ran = run(conn, "one", tenant=1)
    assert ran.error is None
    assert [line.partition(":")[0] for line in said[:3]] == ["this connection has no transaction open"] * 3
    assert "can't bind a sqlalchemy.engine.base.Engine" in said[3]
    assert "can't bind a builtins.NoneType" in said[4]


def test_a_connection_that_is_not_bound_has_no_tenant(conn: Connection, database: Database) -> None:
    """C72: it reads nothing, and what it writes is refused: the job has failed, and says so."""
    seen: list[Any] = []

    @handler("one")
    def one(job: Job) -> None:
        with psycopg.connect(database.worker_url, autocommit=True) as raw:
            seen.extend(raw.execute(SEEN).fetchall())
            raw.execute("insert into test.notes values (%s, 'new')", [job.tenant])

    ran = run(conn, "one", tenant=2)
    assert seen == []
    assert (ran.outcome, ran.error.sqlstate) == ("failed", "42501")  # type: ignore[union-attr]
    assert "row-level security" in ran.summary
    assert database.execute("select count(*) as rows from test.notes")[0].rows == 2


def test_a_coroutine_can_bind_from_a_test_too(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the connection of an asynchronous test."""
    monkeypatch.setattr("fencepost.handlers._handlers", {})
    seen: list[Any] = []

    @handler("one")
    async def one(job: Job) -> None:
        seen.extend(await by_psycopg_async(job, database.worker_url))

    async def tried() -> str:
        async with await AsyncConnection.connect(database.worker_url) as conn:
            return (await arun(conn, "one", tenant=2)).outcome

    assert asyncio.run(tried()) == "done"
    assert seen == OF_TENANT_2
