"""A claim whose answer is lost: it may have been carried out, or be carried out yet."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from fencepost.board import Board, Orders, Record, boottime
from fencepost.handlers import Handler
from fencepost.job import Ended, Outcome
from fencepost.jobs import claim as statements
from fencepost.jobs.claim import Claim, claim, finish_and_claim
from fencepost.settings import read
from fencepost.start import WorkerStart
from fencepost.worker import claim as claiming
from fencepost.worker.finish import Finishes
from fencepost.worker.patience import Patience
from fencepost.worker.session import Session
from support.databases import Database
from support.jobs import Jobs
from support.verbs import Verbs


class PatientLine:
    """A line on which nothing has to be waited for."""

    orders = Orders()

    def __init__(self) -> None:
        self.pauses = 0

    def say(self, _record: Record) -> None: ...

    def say_still_claiming(self) -> None: ...

    def sleep(self, _seconds: float | None) -> None:
        self.pauses += 1


@pytest.fixture
def claims_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Database], claiming.Claims]]:
    """Make a worker's claims, on the worker's own sessions."""
    monkeypatch.setattr(claiming, "registered", lambda: {"ok": Handler("ok", print, 3, None, None, False, False)})
    with ExitStack() as at_the_end:

        def of(database: Database) -> claiming.Claims:
            monkeypatch.setenv("DATABASE_URL", database.worker_url)
            _ours, theirs = map(at_the_end.enter_context, socket.socketpair())
            files = [os.memfd_create("note"), os.memfd_create("stacks")]
            for fd in files:
                at_the_end.callback(os.close, fd)
            start = WorkerStart(read(), 1, "w1", Board(), theirs, *files, 0)
            session, line = Session(start.settings, start.name), PatientLine()
            at_the_end.callback(session._pool.close)
            at_the_end.callback(session.drop_claims)
            return claiming.Claims(start, session, line, Patience(session, line))  # type: ignore[arg-type]  # what is used of a line is here

        yield of


@pytest.fixture
def claims(database: Database, claims_of: Callable[[Database], claiming.Claims]) -> claiming.Claims:
    """Return a worker's claims from the shared database."""
    return claims_of(database)


def test_one_that_has_slept_takes_what_is_new_before_it_looks_at_all(
    claims: claiming.Claims, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at the whole takes as long as a claim: it comes with the next one, and finds what lies behind the key then."""
    looks: list[float] = []
    late = [0.0]

    def lanes(*arguments: Any) -> list[tuple[str, int]]:
        looks.append(late[0])
        return statements.lanes(*arguments)

    monkeypatch.setattr(claiming, "lanes", lanes)
    monkeypatch.setattr(claiming, "boottime", lambda: boottime() + late[0])
    jobs.enqueue("ok")
    assert claims.next() is not None
    assert claims.next() is None
    late[0] = 60.0
    behind, new = jobs.enqueue("ok", run_at=datetime(2020, 1, 1, tzinfo=UTC)), jobs.enqueue("ok")
    found = claims.next()
    assert found is not None
    assert found.id == new
    assert 60.0 not in looks
    found = claims.next()
    assert found is not None
    assert found.id == behind
    assert 60.0 in looks


def lose(monkeypatch: pytest.MonkeyPatch, *, done: bool) -> None:
    """Lose the answer to the next claim, which was carried out or not."""

    def lost(*arguments: Any, **options: Any) -> Claim | None:
        monkeypatch.setattr(claiming, "claim", claim)
        if done:
            claim(*arguments, **options)
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(claiming, "claim", lost)


def test_a_claim_that_was_carried_out_is_adopted(claims: claiming.Claims, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 8: asked for by the claim's name; counted once, and run by the worker that claimed it."""
    job = jobs.enqueue("ok")
    lose(monkeypatch, done=True)
    adopted = claims.next()
    assert adopted is not None
    assert (adopted.id, adopted.name, adopted.attempt) == (job, "w1:1", 1)
    assert (jobs[job].status, jobs[job].attempts) == ("running", 1)
    # It was not looked for work: the worker looks again before it sleeps.
    assert not claims.searched


def test_a_claim_that_was_not_carried_out_is_made_again(
    claims: claiming.Claims, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is held, nothing counted; the next claim takes the job."""
    job = jobs.enqueue("ok")
    lose(monkeypatch, done=False)
    assert claims.next() is None
    assert (jobs[job].status, jobs[job].attempts) == ("queued", 0)
    taken = claims.next()
    assert taken is not None
    assert (taken.id, taken.name) == (job, "w1:2")


def test_only_the_claim_that_was_asked_for_is_adopted(
    claims: claiming.Claims, jobs: Jobs, verbs: Verbs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failover that lost commits the table may show what this worker has long finished: that is for the sweep."""
    old = jobs.enqueue("ok")
    verbs.must_claim(name="w1:77")
    lose(monkeypatch, done=False)
    assert claims.next() is None
    assert jobs[old].status == "running"


@pytest.mark.parametrize("done", [True, False], ids=["carried out", "not carried out"])
def test_a_claim_that_travelled_with_a_finish_is_adopted_or_made_again(
    claims: claiming.Claims, jobs: Jobs, database: Database, monkeypatch: pytest.MonkeyPatch, *, done: bool
) -> None:
    """Rules 8 and 9: the finish is sent again by itself, and then it is asked what became of the claim."""
    first, second = jobs.enqueue("ok"), jobs.enqueue("ok")
    run = claims.next()
    assert run is not None

    def lost(conn: psycopg.Connection[Any], *arguments: Any, **options: Any) -> None:
        if done:
            finish_and_claim(conn, *arguments, **options)
        database.execute("select pg_terminate_backend(%s)", [conn.info.backend_pid])
        conn.execute("select 1")

    monkeypatch.setattr(claiming, "finish_and_claim", lost)
    with pytest.raises(psycopg.OperationalError) as raised:
        claims.next_with_finish(run, Outcome(Ended.done))
    Finishes("fencepost", claims._session, claims._patience).write(run, Outcome(Ended.done))
    adopted = claims.after_finish(raised.value)
    assert jobs.outcomes(first) == ["done"]
    if done:
        assert adopted is not None
        assert (adopted.id, adopted.name) == (second, "w1:2")
    else:
        assert adopted is None
        assert (jobs[second].status, jobs[second].attempts) == ("queued", 0)


def test_why_a_finish_was_not_answered_is_what_is_told(claims: claiming.Claims, jobs: Jobs, database: Database) -> None:
    """Once, and not that the session is gone: it is sent again on another."""
    first, second = jobs.enqueue("ok"), jobs.enqueue("ok")
    run = claims.next()
    assert run is not None
    database.execute("select pg_terminate_backend(%s)", [claims._session.claims().info.backend_pid])
    with capture_logs() as told:
        with pytest.raises(psycopg.OperationalError):
            claims.next_with_finish(run, Outcome(Ended.done))
        Finishes("fencepost", claims._session, claims._patience).write(run, Outcome(Ended.done))
    (warning,) = (line["error"] for line in told if line["log_level"] == "warning")
    assert "no connection to the server" not in warning
    assert jobs.outcomes(first) == ["done"]
    assert jobs[second].status == "queued"


@pytest.mark.parametrize("by", ["a migration", "a proxy"])
def test_a_claim_that_is_refused_for_what_its_session_keeps_is_made_on_another(
    fresh_database: Database, claims_of: Callable[[Database], claiming.Claims], by: str
) -> None:
    """Its statement has other columns by now, or is gone: on that session each claim would be refused for ever."""
    jobs, claims = Jobs(fresh_database), claims_of(fresh_database)
    jobs.enqueue("ok")
    second = jobs.enqueue("ok")
    assert claims.next() is not None
    if by == "a migration":
        fresh_database.owner.execute("alter table fencepost.jobs alter column priority type bigint")
    else:
        claims._session.claims().execute("deallocate all")
    assert claims.next() is None
    taken = claims.next()
    assert taken is not None
    assert taken.id == second


def test_a_drain_leaves_an_open_claim_to_the_supervisor(
    claims: claiming.Claims, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker says nothing of having left as it should: the supervisor asks the table once it is gone."""
    jobs.enqueue("ok")
    lose(monkeypatch, done=True)
    monkeypatch.setattr(claims._line, "orders", Orders(drain=True))
    assert claims.next() is None
    assert claims.unresolved


def test_the_old_session_is_gone_before_the_table_is_asked(
    claims: claiming.Claims, jobs: Jobs, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was fully sent on it could be carried out after the question."""
    jobs.enqueue("ok")
    first = claims.next()
    assert first is not None
    old = database.value("select pid from pg_stat_activity where application_name = 'fencepost w1'")
    # A session of the same worker that is not closed with the connection: as one whose client's end was cut off.
    with psycopg.connect(database.worker_url, application_name="fencepost w1", autocommit=True) as stuck:
        lose(monkeypatch, done=False)
        claims.next()
        pids = [row.pid for row in database.execute("select pid from pg_stat_activity where application_name = 'fencepost w1'")]
        assert old not in pids
        assert stuck.info.backend_pid not in pids
        assert len(pids) == 1


@pytest.mark.parametrize("rule", [True, False], ids=["with the rule", "without"])
def test_rule_8_a_claim_is_asked_for_once_its_session_is_gone(
    claims: claiming.Claims, jobs: Jobs, database: Database, monkeypatch: pytest.MonkeyPatch, *, rule: bool
) -> None:
    """The claim is still being committed as the table is asked: without the rule the job then runs for no one."""
    job = jobs.enqueue("ok")
    if not rule:
        monkeypatch.setattr(Session, "end_old_sessions", lambda _self: None)
    with database.worker_conn(application_name="fencepost w1", autocommit=False) as stuck:
        assert Verbs(stuck).claim(name="w1:1") is not None
        lose(monkeypatch, done=False)
        assert claims.next() is None
        with suppress(psycopg.OperationalError):
            stuck.commit()
    assert jobs[job].status == ("queued" if rule else "running")
