"""Rules of the protocol that the table keeps: each accident happens twice, with the rule and without it.

The rule is taken out here, of a statement as it is sent or of a function in the test's own database; the product has no switch
for it. That the wrong thing then happens shows that the accident is one.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from fencepost.board import Orders, boottime
from fencepost.job import Ended
from fencepost.jobs import claim as statements_of_claims
from fencepost.jobs import cleaning
from fencepost.jobs.sweep import Lease
from fencepost.jobs.transaction import Context, Held
from fencepost.logs import _of_the_run, of_a_run
from fencepost.settings import Settings, read
from fencepost.supervisor.leases import Leases
from fencepost.worker import claim as claiming
from fencepost.worker import session as sessions
from fencepost.worker.claim import Claims
from fencepost.worker.connection import JobConnection, Lent
from fencepost.worker.lanes import Lanes
from fencepost.worker.session import Session
from fencepost.worker.transactions import RunTransactions
from support import verbs as sender
from support.databases import Database
from support.jobs import Jobs
from support.transactions import begin, commit
from support.verbs import KINDS, Verbs, pages_of_a_claim
from support.waiting import wait_until

AT_ONCE = timedelta(microseconds=1)
CONTEXT = Context(tenant_setting="app.tenant", tenant="7", role="", time_left=60_000)

with_and_without = pytest.mark.parametrize("rule", [True, False], ids=["with the rule", "without"])

Take = Callable[..., None]


@pytest.fixture
def database(fresh_database: Database) -> Database:
    """A database of the test's own, whose functions may be altered."""
    return fresh_database


@pytest.fixture
def take_out(database: Database, monkeypatch: pytest.MonkeyPatch, *, rule: bool) -> Take:
    """Take a piece out of a function, or of a statement as it is sent; where the rule is to hold, only see that it is there."""

    def of_function(name: str, piece: str, by: str = "") -> None:
        text = database.value("select pg_get_functiondef(%s::regproc)", [f"fencepost.{name}"])
        assert text.count(piece) == 1, f"{name} has not got {piece!r} once"
        if not rule:
            database.owner.execute(text.replace(piece, by))

    def of_statement(verb: str, piece: str, by: str = "") -> None:
        unaltered = sender.statement
        text = unaltered(verb, "fencepost").decode()
        assert text.count(piece) == 1, f"{verb} has not got {piece!r} once"
        altered = text.replace(piece, by).encode()
        if not rule:
            for module in (sender, statements_of_claims):
                monkeypatch.setattr(
                    module, "statement", lambda sent, schema: altered if sent == verb else unaltered(sent, schema)
                )

    def take(piece: str, by: str = "", *, function: str = "", verb: str = "") -> None:
        if function:
            of_function(function, piece, by)
        else:
            of_statement(verb, piece, by)

    return take


def held(verbs: Verbs) -> Held:
    """Claim a job, and begin a transaction of its run."""
    claimed = verbs.must_claim(lease=AT_ONCE)
    run = Held(claimed.id, claimed.fence, claimed.name)
    begin(verbs.conn, verbs.schema, run, CONTEXT)
    return run


def write(verbs: Verbs, run: Held) -> None:
    verbs.conn.execute("insert into test.rows (job, attempt) values (%s, 1)", [run.job_id])


def commits(verbs: Verbs, run: Held) -> bool:
    """Whether the transaction that is open commits."""
    try:
        commit(verbs.conn, verbs.schema, run)
    except psycopg.Error:
        verbs.conn.execute("rollback")
        return False
    return True


@with_and_without
def test_rule_2_a_run_is_known_by_more_than_its_fence(
    verbs: Verbs, other_verbs: Verbs, jobs: Jobs, take_out: Take, *, rule: bool
) -> None:
    """The run was lost, the job is queued, and its fence is what it was: by the fence alone the dead run would commit."""
    take_out(
        "j.locked_by = name and j.locked_until is not null\n    for no key update", "true for no key update", function="hold"
    )
    job = jobs.enqueue("ok")
    run = held(verbs)
    write(verbs, run)
    other_verbs.sweep(other_verbs.expired())
    assert jobs.get(job).status == "queued"
    assert commits(verbs, run) is not rule
    assert len(jobs.rows()) == (0 if rule else 1)


@with_and_without
def test_rule_3_the_fence_is_held_to_the_commit(
    verbs: Verbs, other_verbs: Verbs, jobs: Jobs, take_out: Take, *, rule: bool
) -> None:
    """A sweep comes between the look at the fence and the COMMIT: without the lock it takes the job, and both have it."""
    take_out("for no key update", function="hold")
    job = jobs.enqueue("ok")
    run = held(verbs)
    write(verbs, run)
    verbs.conn.execute("select fencepost.hold(%s, %s, %s)", [run.job_id, run.fence, run.name])
    other_verbs.sweep(other_verbs.expired())
    assert jobs.get(job).status == ("running" if rule else "queued")
    verbs.conn.execute("commit")
    assert len(jobs.rows()) == 1


@with_and_without
def test_rule_4_a_transaction_that_is_not_ours_does_not_commit(verbs: Verbs, jobs: Jobs, take_out: Take, *, rule: bool) -> None:
    """The job has ended its transaction; what it writes in the next one it would write without its tenant."""
    take_out("is distinct from name", "is null and name is null", function="hold")
    jobs.enqueue("ok")
    run = held(verbs)
    verbs.conn.execute("commit")
    verbs.conn.execute("begin")
    assert not (verbs.conn.execute("select current_setting('app.tenant', true)").fetchone() or ("",))[0]
    write(verbs, run)
    assert commits(verbs, run) is not rule
    assert len(jobs.rows()) == (0 if rule else 1)


@with_and_without
def test_rule_5_a_role_of_jobs_needs_no_right_on_the_queue(verbs: Verbs, jobs: Jobs, database: Database, *, rule: bool) -> None:
    """The fence is a definer's function: by the job's own rights it could not be looked at."""
    if not rule:
        database.execute("alter function fencepost.hold security invoker")
    jobs.enqueue("ok")
    run = held(verbs)
    database.execute(f"revoke select, update on fencepost.jobs from {database.worker}")
    assert commits(verbs, run) is rule


@with_and_without
def test_rule_6_a_claim_is_durable_where_commits_are_not_awaited(
    verbs: Verbs, jobs: Jobs, take_out: Take, *, rule: bool
) -> None:
    """What is set in the claim's transaction decides how it commits."""
    take_out("set_config('synchronous_commit', 'local', true)", "'off'", verb="claim")
    jobs.enqueue("ok")
    verbs.conn.execute("set synchronous_commit = off")
    with verbs.conn.transaction():
        arguments = {**sender.NOTHING, **sender.claim_arguments("w:1", [sender.lane()], {"ok": 3}, sender.LEASE)}
        verbs.conn.execute(sender.statement("claim", "fencepost"), arguments)
        assert verbs.conn.execute("show synchronous_commit").fetchone() == (("local",) if rule else ("off",))


@with_and_without
def test_rule_8_an_outcome_that_is_sent_again_is_answered_the_same(
    verbs: Verbs, jobs: Jobs, take_out: Take, *, rule: bool
) -> None:
    """Its first answer was lost: a worker that is told no takes its run for void, and it is done."""
    take_out("return exists (", "return false and exists (", function="finish")
    job = jobs.enqueue("ok")
    claimed = verbs.must_claim()
    assert verbs.finish(claimed)
    assert verbs.finish(claimed) is rule
    assert jobs.outcomes(job) == ["done"]


@with_and_without
def test_rule_9_a_claim_that_travels_with_a_finish_comes_after_it(
    verbs: Verbs, jobs: Jobs, database: Database, take_out: Take, *, rule: bool
) -> None:
    """Someone cancels many jobs: the one that runs, which the finish then waits for, and next the one that would be claimed."""
    take_out("where (select count(*) from finished) >= 0", "", verb="claim")
    take_out(
        "from finished\nleft join", "from (select count(*) from claimed) first\ncross join finished\nleft join", verb="claim"
    )
    running, waiting = jobs.enqueue("ok"), jobs.enqueue("ok")
    claimed = verbs.must_claim()
    answers = []
    thread = threading.Thread(target=lambda: answers.append(verbs.finish_and_claim(claimed)))
    with database.conn(autocommit=False) as many:
        many.execute("select fencepost.cancel(%s)", [running])
        thread.start()
        waits = "select cardinality(pg_blocking_pids(%s)) > 0"
        wait_until(lambda: database.value(waits, [verbs.conn.info.backend_pid]), what="the finish waits for the cancel")
        many.execute("set local lock_timeout = '50ms'")
        if rule:
            assert many.execute("select fencepost.cancel(%s)", [waiting]).fetchone() == ("cancelled",)
        else:
            with pytest.raises(psycopg.errors.LockNotAvailable):
                many.execute("select fencepost.cancel(%s)", [waiting])
            many.rollback()
    thread.join()
    ((held_to_the_end, following),) = answers
    assert held_to_the_end
    assert (following is None) is rule


@with_and_without
def test_rule_11_a_heartbeat_does_not_wait_for_a_row(
    verbs: Verbs, jobs: Jobs, database: Database, take_out: Take, *, rule: bool
) -> None:
    """One row is locked for long: a beat that waits for it costs all the others their leases."""
    take_out("for no key update of j skip locked", "for no key update of j", verb="heartbeat")
    for _ in range(2):
        jobs.enqueue("ok")
    locked, free = verbs.must_claim(), verbs.must_claim()
    verbs.conn.execute("set lock_timeout = '50ms'")
    with database.conn(autocommit=False) as conn:
        conn.execute("select from fencepost.jobs where id = %s for update", [locked.id])
        try:
            answers = verbs.heartbeat(locked, free)
        except psycopg.errors.LockNotAvailable:
            answers = {}
    assert answers == ({locked.name: "locked", free.name: "renewed"} if rule else {})


@with_and_without
def test_rule_11_a_foreign_key_keeps_no_lease_from_being_renewed(
    verbs: Verbs, jobs: Jobs, database: Database, take_out: Take, *, rule: bool
) -> None:
    """FOR UPDATE would skip a row that another one refers to, for as long as that transaction is open."""
    take_out("for no key update of j skip locked", "for update of j skip locked", verb="heartbeat")
    database.execute("create table test.refers (job bigint references fencepost.jobs (id))")
    job = jobs.enqueue("ok")
    claimed = verbs.must_claim()
    with database.conn(autocommit=False) as conn:
        conn.execute("insert into test.refers values (%s)", [job])
        assert verbs.heartbeat(claimed) == {claimed.name: "renewed" if rule else "locked"}


@with_and_without
def test_rule_14_only_what_stands_as_it_was_seen_is_swept(
    verbs: Verbs, other_verbs: Verbs, jobs: Jobs, take_out: Take, *, rule: bool
) -> None:
    """The holder has beaten since, and its lease has run out again: it lives, and the look must begin anew."""
    take_out("and j.locked_until = s.expired_at", verb="sweep")
    job = jobs.enqueue("ok")
    claimed = verbs.must_claim(lease=AT_ONCE)
    seen = other_verbs.expired()
    assert verbs.heartbeat(claimed, lease=AT_ONCE) == {claimed.name: "renewed"}
    other_verbs.sweep(seen)
    assert jobs.get(job).status == ("running" if rule else "queued")


@pytest.mark.parametrize("patience", [20.0, 0.0], ids=["with the rule", "without"])
def test_rule_14_a_lease_is_looked_at_for_long_before_it_is_swept(patience: float) -> None:
    """The server's clock has stepped: all leases are over at once, and all their holders live."""
    lease = Lease(1, 1, "w:1", datetime(2026, 1, 1, tzinfo=UTC))
    leases = Leases(expired={lease: 100.0})
    assert leases.ripe(101.0, patience) == ([] if patience else [lease])
    assert leases.ripe(100.0 + patience, patience) == [lease]


@with_and_without
def test_rule_16_a_booking_waits_for_a_row_that_is_locked(
    verbs: Verbs, jobs: Jobs, database: Database, take_out: Take, *, rule: bool
) -> None:
    """One that skips it is told that nothing was held, and does not come again: the job runs for no one."""
    take_out(
        "and j.locked_until is not null\n        for no key update",
        "and j.locked_until is not null\n        for no key update skip locked",
        function="finish",
    )
    job = jobs.enqueue("ok")
    claimed = verbs.must_claim()
    verbs.conn.execute("set lock_timeout = '50ms'")
    with database.conn(autocommit=False) as conn:
        conn.execute("select from fencepost.jobs where id = %s for update", [job])
        try:
            told = verbs.finish(claimed, Ended.crashed)
        except psycopg.errors.LockNotAvailable:
            told = None
    assert told == (None if rule else False)
    assert verbs.finish(claimed, Ended.crashed)


@with_and_without
def test_rule_17_a_job_that_is_interrupted_for_ever_ends(verbs: Verbs, jobs: Jobs, take_out: Take, *, rule: bool) -> None:
    """Twenty times it is given back, then each time counts; else it would run for ever."""
    take_out("and job.interruptions < 20", function="finish")
    job = jobs.enqueue("ok", max_attempts=3)
    runs = 0
    while runs < 40 and (claimed := verbs.claim()) is not None:
        assert verbs.finish(claimed, Ended.interrupted)
        runs += 1
    assert (runs, jobs.get(job).status) == ((23, "dead") if rule else (40, "queued"))


@with_and_without
@pytest.mark.parametrize("ended", ["failed", "lost", "interrupted", "snoozed"])
def test_rule_18_however_a_run_ends_a_cancel_is_read(
    verbs: Verbs, jobs: Jobs, database: Database, take_out: Take, ended: str, *, rule: bool
) -> None:
    """Asked to stop while it ran, and queued again, it would run in spite of that.

    The table refuses it too: without that, its sweep or its booking would fail for ever.
    """
    if not rule:
        database.execute("alter table fencepost.jobs drop constraint a_waiting_job_is_not_to_be_cancelled")
    take_out("or job.cancel_requested_at is not null", function="finish")
    job = jobs.enqueue("ok")
    claimed = verbs.must_claim()
    assert database.value("select fencepost.cancel(%s)", [job]) == "running"
    assert verbs.finish(claimed, ended)
    assert jobs.get(job).status == ("cancelled" if rule else "queued")


@with_and_without
def test_rule_20_a_statement_ends_with_the_time_of_its_run(verbs: Verbs, jobs: Jobs, *, rule: bool) -> None:
    """What a machine that vanished was doing on the server would go on there."""
    jobs.enqueue("ok")
    claimed = verbs.must_claim()
    run = Held(claimed.id, claimed.fence, claimed.name)
    context = Context(tenant_setting="app.tenant", tenant="7", role="", time_left=100 if rule else 0)
    begin(verbs.conn, verbs.schema, run, context)
    try:
        verbs.conn.execute("select pg_sleep(0.3)")
    except psycopg.Error:
        ended = True
    else:
        ended = False
    assert ended is rule


# ---- sessions


@pytest.fixture
def open_session(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Session]]:
    """Open the sessions of workers, by their names; all are closed with the test."""
    monkeypatch.setenv("DATABASE_URL", database.worker_url)
    opened: list[Session] = []

    def open_one(worker: str) -> Session:
        opened.append(Session(read(), worker))
        return opened[-1]

    yield open_one
    for one in opened:
        one.drop_claims()
        one._drop_job()
        one._pool.close()


def as_a_job_sees_it(session: Session) -> Connection[Any]:
    return JobConnection.on(session.job_pgconn(), Lent())


KEPT = {
    "a role": ("set role pg_monitor", "select current_user = 'pg_monitor'"),
    "a temporary table": ("create temporary table kept ()", "select to_regclass('pg_temp.kept') is not null"),
    "a lock": ("select pg_advisory_lock(7)", "select exists (select from pg_locks where locktype = 'advisory')"),
    "a channel": ("listen kept", "select exists (select from pg_listening_channels())"),
}
"""What a job can leave in its session, and how the next one would see it."""


@with_and_without
def test_rule_19_a_job_finds_nothing_of_another_in_its_session(
    open_session: Callable[[str], Session], database: Database, monkeypatch: pytest.MonkeyPatch, *, rule: bool
) -> None:
    """What a rollback and RESET ALL would leave there: the next job is another tenant's."""
    if not rule:
        monkeypatch.setattr(sessions.Cleaning, "clean", lambda its, **_: str(its._conn.execute("rollback; reset all"))[:0])
    database.execute(f"grant pg_monitor to {database.worker}")
    session = open_session("w1")
    first = as_a_job_sees_it(session)
    for leave, _ in KEPT.values():
        first.execute(leave.encode())
    session.clean("one", done=True)
    session.clean_what_is_owed()
    second = as_a_job_sees_it(session)
    found = [what for what, (_, look) in KEPT.items() if second.execute(look.encode()).fetchone() == (True,)]
    assert found == ([] if rule else list(KEPT))


Use = Callable[..., None]

LEAVES = "create temporary table kept (); select pg_advisory_lock(7)"
IN_THE_WAY = {"a temporary table", "a lock"}


@pytest.fixture
def use(verbs: Verbs, jobs: Jobs) -> Use:
    """Have a job of a kind say something in a transaction of its own, and leave its session to that which follows."""
    jobs.enqueue("ok")
    claimed = verbs.must_claim()
    run = Held(claimed.id, claimed.fence, claimed.name)

    def used_by(session: Session, kind: str, statements: str = "", following: str | None = None) -> None:
        with of_a_run(kind=kind):
            one = RunTransactions(session, session._settings, run, "7", boottime() + 60, session.transactions)
            with one.transaction() as conn:
                conn.execute(statements.encode())
            session.clean(kind, done=True)
        if following is None:
            session.clean_what_is_owed()
        else:
            session.next_is(following)

    return used_by


@pytest.fixture
def settled(open_session: Callable[[str], Session], use: Use) -> Session:
    """A session of which it is known that jobs of kind `soon` begin a transaction at once, and those of `never` none."""
    session = open_session("w1")
    for _ in range(sessions.FIRST_RUNS + 1):
        use(session, "soon")
        session.clean("never", done=True)
    return session


def others_see(database: Database) -> set[str]:
    """Return what of KEPT is in the way of others."""
    return {
        row.what
        for row in database.execute(
            """
            select 'a lock' as what from pg_locks where locktype = 'advisory'
            union select 'a temporary table' from pg_class where relname = 'kept'
            """
        )
    }


@pytest.mark.parametrize(
    ("following", "seen"),
    [("soon", IN_THE_WAY), ("never", set()), ("unknown", set()), (None, set())],
    ids=["by one that soon begins", "by one that never does", "by a kind that was never seen", "by nobody"],
)
def test_rule_19_a_session_is_cleaned_at_once_unless_it_is_soon_used(
    settled: Session, use: Use, database: Database, following: str | None, seen: set[str]
) -> None:
    """Only so can a lock be left to itself: for a moment, and none where one of the kind was seen to leave something."""
    use(settled, "soon", LEAVES, following)
    assert others_see(database) == seen
    use(settled, "soon", "set timezone = 'Asia/Tokyo'")
    assert others_see(database) == set()
    use(settled, "soon", LEAVES, following)
    assert others_see(database) == set()


TOLD = {
    # The answer to what went before in the same message is lost with it.
    "the next can't begin": [],
    "it can't be done": ["another: ROLLBACK TO SAVEPOINT can only be used in transaction blocks"] * 2,
}


@pytest.mark.parametrize("then", ["the next has no transaction", "there is none", *TOLD])
def test_rule_19_a_cleaning_that_was_put_off_is_done_all_the_same(
    settled: Session, use: Use, database: Database, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what it finds is named by the job that has left it."""
    told: list[str] = []

    def warning(_event: str, *, left: str = "", error: str = "") -> None:
        told.append(f"{_of_the_run(None, '', {})['kind']}: {left or error}")

    monkeypatch.setattr(sessions, "log", SimpleNamespace(warning=warning, info=lambda *_, **__: None))
    use(settled, "soon", f"{LEAVES}; set timezone = 'Asia/Tokyo'", "soon")
    with of_a_run(kind="another"):
        match then:
            case "the next has no transaction":
                settled.clean("another", done=True)
            case "there is none":
                settled.clean_what_is_owed()
            case "the next can't begin":
                settled._settings = settled._settings.model_copy(update={"job_role": "nobody"})
                with pytest.raises(psycopg.DataError, match="nobody"):
                    use(settled, "another")
            case "it can't be done":
                monkeypatch.setattr(cleaning, "RESETS", ("undo",))
                use(settled, "another")
    wait_until(lambda: not others_see(database), what="the end of what was left")
    assert told == TOLD.get(then, ["soon: settings (TimeZone)"])


def test_rule_19_a_session_that_nobody_could_clean_is_no_jobs(
    open_session: Callable[[str], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it is like as new could not be read, and the server has answered: it stays open."""
    session = open_session("w1")
    with monkeypatch.context() as patch:
        patch.setattr(cleaning, "statement", lambda *_: b"select 1 / 0")
        with pytest.raises(psycopg.errors.DivisionByZero):
            session.job_pgconn()
    as_a_job_sees_it(session).execute("listen kept")
    session.clean("one", done=True)
    assert as_a_job_sees_it(session).execute("select count(*) from pg_listening_channels()").fetchone() == (0,)


@with_and_without
def test_rule_19_the_connection_for_claims_is_no_jobs(
    open_session: Callable[[str], Session], monkeypatch: pytest.MonkeyPatch, *, rule: bool
) -> None:
    """A job breaks its own: what is still to be sent, that it failed say, has another."""
    session = open_session("w1")
    session.claims()
    if not rule:
        monkeypatch.setattr(session, "job_pgconn", lambda: session.claims().pgconn)
    session.job_pgconn().finish()
    try:
        answered = session.claims().execute("select true").fetchone() == (True,)
    except psycopg.OperationalError:
        answered = False
    assert answered is rule


WAITS = ("select pg_sleep(60)", "select pg_advisory_lock(7)", "do 'begin loop end loop; end'")


def test_rule_21_the_server_ends_what_a_dead_client_has_begun(
    open_session: Callable[[str], Session], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it does not look after its clients, each goes on: asleep, before a lock, and taking all of a core."""
    database.execute("select pg_advisory_lock(7)")
    going_on = "select count(*) from pg_stat_activity where state = 'active' and application_name like %s"

    def begin(worker: str) -> None:
        for number, statement in enumerate(WAITS):
            pgconn = open_session(f"{worker}-{number}").claims().pgconn
            pgconn.send_query(statement.encode())
            wait_until(lambda number=number: database.value(going_on, [f"fencepost {worker}-{number}"]), what=statement)
            # As the kernel does for a process that has died.
            with socket.socket(fileno=pgconn.socket) as dead:
                dead.shutdown(socket.SHUT_RDWR)
                dead.detach()

    with monkeypatch.context() as without:
        conninfo = Settings.conninfo
        without.setattr(Settings, "conninfo", lambda settings, name, **_: conninfo(settings, name))
        begin("forgotten")
    begin("noticed")
    wait_until(lambda: database.value(going_on, ["fencepost noticed-%"]) == 0, within=5, what="the end of all three")
    assert database.value(going_on, ["fencepost forgotten-%"]) == len(WAITS)
    database.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'fencepost forgotten-%%'"
    )


# ---- the cursor


@with_and_without
def test_rule_22_a_claim_does_not_walk_what_was_claimed_before_it(
    verbs: Verbs, jobs: Jobs, database: Database, monkeypatch: pytest.MonkeyPatch, *, rule: bool
) -> None:
    """While a transaction is open elsewhere, their entries can't be removed: from the start each claim passes all of them."""
    if not rule:
        monkeypatch.setattr(Lanes, "took", lambda _self, _claim: None)
    database.execute(
        "insert into fencepost.jobs (kind, run_at) select 'ok', now() - interval '1 hour' from generate_series(1, 2100)"
    )
    database.execute("vacuum analyze fencepost.jobs")
    lanes = Lanes(("default",))
    lanes.look_at_all([("default", 0)])
    with database.conn(autocommit=False) as old:
        old.execute("set transaction isolation level repeatable read")
        old.execute("select count(*) from fencepost.jobs")
        at_first = pages_of_a_claim(database, lanes.in_order()[0])
        database.execute(
            """update fencepost.jobs set status = 'running', attempts = 1, max_attempts = 1, fence = 1, locked_by = 'x',
               locked_until = now() + interval '1 hour', started_at = now() where id < 2000"""
        )
        claimed = verbs.must_claim(lanes=lanes.in_order())
        assert claimed.id == 2000
        lanes.took(claimed)
        afterwards = pages_of_a_claim(database, lanes.in_order()[0])
    assert (afterwards <= at_first + 10) is rule


@with_and_without
def test_rule_22_what_lands_below_the_cursor_is_found_by_time(
    verbs: Verbs, jobs: Jobs, open_session: Callable[[str], Session], monkeypatch: pytest.MonkeyPatch, *, rule: bool
) -> None:
    """A job that was given back lies where the worker has been: behind its key it would not look for it in an hour."""
    late = [0.0]
    monkeypatch.setattr(claiming, "boottime", lambda: boottime() + late[0])
    start = SimpleNamespace(settings=read(), name="w1")
    line = SimpleNamespace(say=lambda _: None, orders=Orders())
    claims = Claims(start, open_session("w1"), line, SimpleNamespace(answered=lambda: None))  # type: ignore[arg-type]
    claims._max_attempts = KINDS
    back, beyond = jobs.enqueue("ok"), jobs.enqueue("ok")
    first, second = claims.next(), claims.next()
    assert first is not None
    assert second is not None
    assert (first.id, second.id) == (back, beyond)
    assert verbs.finish(first, Ended.interrupted)
    if not rule:
        monkeypatch.setattr(Lanes, "may_look_at_all", lambda *_, busy: False)
    late[0] = 3600.0
    found = claims.next()
    assert (found is not None and found.id == back) is rule
