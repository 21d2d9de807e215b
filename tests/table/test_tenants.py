"""A tenant's jobs are its own: what a job enqueues is its tenant's, and nobody reaches another's by its id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection, Connection

from fencepost import (
    InvalidJob,
    Job,
    JobError,
    RetryRefused,
    UnknownJob,
    acancel,
    aenqueue,
    aget,
    aretry,
    cancel,
    enqueue,
    get,
    handler,
    retry,
)
from fencepost.testing import run
from support.databases import Database
from support.jobs import Jobs
from support.verbs import Verbs


@pytest.fixture(autouse=True)
def no_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty registry, put back afterwards."""
    monkeypatch.setattr("fencepost.handlers._handlers", {})


@pytest.fixture
def conn(database: Database) -> Iterator[Connection]:
    """An application's connection, in a transaction, that may call every function."""
    with database.conn(autocommit=False) as opened:
        yield opened
        opened.rollback()


def tenants(conn: Connection) -> list[str | None]:
    return [tenant for (tenant,) in conn.execute("select tenant_id from fencepost.jobs order by id")]


# ---- follow-up jobs


def test_what_a_job_enqueues_is_its_tenants_unless_told_otherwise(conn: Connection, database: Database) -> None:
    """By Python and by SQL, in its own transaction and in one that it has bound; None says that the job has none."""

    @handler("follows", transaction=True)
    def follows(job: Job) -> None:
        enqueue(job.conn, "unknown.here")
        enqueue(job.conn, "unknown.here", tenant=8)
        enqueue(job.conn, "unknown.here", tenant=None)
        job.conn.execute("select fencepost.enqueue('unknown.here')")
        job.conn.execute("select fencepost.enqueue('unknown.here', tenant => null)")
        with psycopg.connect(database.worker_url) as other:
            job.bind(other)
            enqueue(other, "by.another.connection")
            other.execute("select fencepost.enqueue('by.another.connection')")

    assert run(conn, follows, tenant=7).error is None
    assert tenants(conn) == ["7", "8", None, "7", None, "7", "7"]


def test_what_needs_a_tenant_has_it_from_a_bound_connection_too(conn: Connection, database: Database) -> None:
    """Only the server knows it there; where there is none, it is refused, and the caller's transaction is as it was."""
    handler("needs")(lambda job: None)

    @handler("follows", tenantless=True)
    def follows(job: Job) -> None:
        with psycopg.connect(database.url) as other:
            job.bind(other)
            if job.tenant is None:
                with pytest.raises(InvalidJob, match="needs a tenant"):
                    enqueue(other, "needs")
            else:
                enqueue(other, "needs")
            enqueue(other, "follows")

    assert run(conn, follows, tenant=7).error is None
    assert run(conn, follows).error is None
    assert tenants(conn) == ["7", "7", None]


def test_a_coroutine_does_the_same(conn: Connection) -> None:
    """By aenqueue."""

    @handler("follows")
    async def follows(job: Job) -> None:
        async with job.transaction() as own:
            await aenqueue(own, "unknown.here")
            await aenqueue(own, "unknown.here", tenant="8")

    assert run(conn, follows, tenant=7).error is None
    assert tenants(conn) == ["7", "8"]


def test_a_job_of_no_tenant_gives_none_and_is_refused_where_one_is_needed(conn: Connection) -> None:
    """C64: what is known at the enqueue is refused there, also inside a job."""
    handler("needs")(lambda job: None)
    handler("cleans", tenantless=True)(lambda job: None)

    @handler("follows", tenantless=True, transaction=True)
    def follows(job: Job) -> None:
        enqueue(job.conn, "cleans")
        enqueue(job.conn, "needs", tenant=3)
        with pytest.raises(InvalidJob, match="needs a tenant"):
            enqueue(job.conn, "needs")

    assert run(conn, follows).error is None
    assert tenants(conn) == [None, "3"]
    with pytest.raises(InvalidJob, match="needs a tenant"):
        enqueue(conn, "needs")


def test_outside_of_a_job_nothing_is_inherited(conn: Connection) -> None:
    """Not from what an application sets for its own policies, nor from a job that ran on this connection before."""
    handler("one")(lambda job: None)
    assert run(conn, "one", tenant=7).outcome == "done"
    conn.execute("select set_config('app.tenant', '9', false)")
    enqueue(conn, "unknown.here")
    conn.execute("select fencepost.enqueue('unknown.here')")
    assert tenants(conn) == [None, None]


# ---- by hand


CALLS: dict[str, Callable[..., Any]] = {
    "get": get,
    "cancel": cancel,
    "retry": retry,
    "aget": aget,
    "acancel": acancel,
    "aretry": aretry,
}


def answer(database: Database, call: str, job: int, tenant: Any) -> Any:
    """Return what a call answers, or the text of its refusal."""

    async def asked() -> Any:
        async with await AsyncConnection.connect(database.url) as conn:
            return await CALLS[call](conn, job, tenant=tenant)

    try:
        if call.startswith("a"):
            return asyncio.run(asked())
        with database.conn() as conn:
            return CALLS[call](conn, job, tenant=tenant)
    except JobError as error:
        return type(error), str(error).replace(str(job), "ID")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("status", ["queued", "dead"])
def test_a_job_of_another_tenant_is_as_one_that_is_not_there(
    database: Database, jobs: Jobs, verbs: Verbs, call: str, status: str
) -> None:
    """C70: the same answer as for an unknown id, and nothing is changed."""
    job = jobs.enqueue("ok", tenant="A", max_attempts=1)
    if status == "dead":
        assert verbs.finish(verbs.must_claim(), "failed")
    before = jobs[job]
    assert before.status == status
    unknown = answer(database, call, 999_999, "B")
    assert unknown in (None, (UnknownJob, "there is no job ID"))
    assert answer(database, call, job, "B") == unknown
    assert jobs[job] == before
    own = answer(database, call, job, "A")
    assert own != unknown or call in ("retry", "aretry")
    if call in ("retry", "aretry", "cancel", "acancel"):
        assert (jobs[job].status == before.status) == ((status, call.lstrip("a")) in (("queued", "retry"), ("dead", "cancel")))


def test_a_job_reaches_its_own_tenants_jobs_and_no_others(conn: Connection) -> None:
    """C70: in its transaction, by Python and by SQL, without saying whose; one that has no tenant reaches all."""
    own, others = enqueue(conn, "waits", tenant=1), enqueue(conn, "waits", tenant=2)
    seen: list[Any] = []

    @handler("reaches", tenantless=True)
    def reaches(job: Job) -> None:
        with job.transaction() as tx:
            seen.append(get(tx, others) is None)
            seen.append(tx.execute("select count(*) from fencepost.get(%s)", [others]).fetchone() == (0,))
            seen.append(tx.execute("select fencepost.cancel(%s)", [others]).fetchone() == (None,))
            seen.append(tx.execute("select refused from fencepost.retry(%s)", [others]).fetchone()[0] is not None)
            seen.append(cancel(tx, own) == "cancelled")

    assert run(conn, reaches, tenant=1).error is None
    assert seen == [True, True, True, True, True]
    assert [get(conn, job).status for job in (own, others)] == ["cancelled", "queued"]  # type: ignore[union-attr]
    seen.clear()
    assert run(conn, reaches).error is None
    assert seen == [False, False, False, False, True]


def test_nor_does_a_job_that_names_another_tenant(conn: Connection) -> None:
    """C70: what is said in a job's transaction narrows, and never widens."""
    others = enqueue(conn, "waits", tenant=2)
    seen: list[Any] = []

    @handler("reaches")
    def reaches(job: Job) -> None:
        with job.transaction() as tx:
            seen.append(get(tx, others, tenant=2))
            seen.append(tx.execute("select count(*) from fencepost.get(%s, null)", [others]).fetchone())
            for call in (cancel, retry):
                with pytest.raises(UnknownJob):
                    call(tx, others, tenant=2)

    assert run(conn, reaches, tenant=1).error is None
    assert seen == [None, (0,)]
    assert get(conn, others).status == "queued"  # type: ignore[union-attr]


def test_a_unique_key_is_its_tenants(conn: Connection) -> None:
    """Another tenant's job with the key is neither found by it nor named, and keeps nobody's from being made."""
    first, none = enqueue(conn, "ok", tenant=1, unique_key="k"), enqueue(conn, "ok", tenant=None, unique_key="k")
    assert enqueue(conn, "ok", tenant=2, unique_key="k") not in (first, none)
    assert enqueue(conn, "ok", tenant=1, unique_key="k") == first
    assert enqueue(conn, "ok", tenant=None, unique_key="k") == none
    cancel(conn, first)
    retry(conn, first, tenant=1)
    cancel(conn, first)
    second = enqueue(conn, "ok", tenant=1, unique_key="k")
    with pytest.raises(RetryRefused, match=f"of job {second}"):
        retry(conn, first, tenant=1)


def test_what_a_job_told_and_returned_is_its_tenants(conn: Connection, verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """C70: progress, result and error come with the job, or not at all; whoever enqueues needs no right on the table."""
    job = jobs.enqueue("ok", tenant="A")
    verbs.finish(verbs.must_claim(), result='"a secret of A"')
    with database.conn() as other:
        found = get(conn, job, tenant="A")
        assert found is not None
        assert found.result == "a secret of A"
        assert get(other, job, tenant="B") is None


# ---- the setting itself


def test_a_setting_that_does_not_hold_a_tenant_as_it_is_is_refused(conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of an extension's, say, that makes a switch of it: the job fails before any of its statements."""
    monkeypatch.setenv("FENCEPOST_TENANT_SETTING", "plpgsql.print_strict_params")
    conn.execute("do $$ begin end $$")
    ran_on: list[Any] = []

    @handler("one")
    def one(job: Job) -> None:
        with job.transaction() as tx:
            ran_on.append(tx)

    ran = run(conn, one, tenant="1")
    assert (ran.outcome, ran_on) == ("failed", [])
    assert "plpgsql.print_strict_params was set to '1' and reads 'on'" in ran.summary
