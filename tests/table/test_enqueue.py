"""A job exists if and only if its enqueuer's transaction commits, and arrives as it was given or is refused by name."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import psycopg
import pytest
from psycopg import AsyncConnection, ClientCursor, Connection, RawCursor
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row, namedtuple_row, scalar_row

from fencepost import InvalidJob, UnknownHandler, aenqueue, enqueue, handler
from fencepost.jobs.payload import LIMIT
from support.databases import Database
from support.jobs import Jobs
from support.verbs import Verbs, lane
from support.waiting import wait_until


class Pair(NamedTuple):
    a: int
    b: int


class Colour(StrEnum):
    red = "red"


class Number(IntEnum):
    one = 1


@pytest.fixture
def no_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty registry, put back afterwards."""
    monkeypatch.setattr("fencepost.handlers._handlers", {})


@pytest.fixture
def conn(connect: Callable[..., Connection]) -> Connection:
    """A connection as an application has it: in a transaction."""
    return connect(autocommit=False)


def count(database: Database) -> int:
    return int(database.value("select count(*) from fencepost.jobs"))


# ---- the caller's transaction


def test_a_job_exists_if_and_only_if_its_transaction_commits(conn: Connection, database: Database) -> None:
    """C105: nobody sees it before, and a rollback takes it back."""
    enqueue(conn, "ok")
    assert count(database) == 0
    conn.rollback()
    assert count(database) == 0
    job = enqueue(conn, "ok")
    conn.commit()
    assert database.value("select id from fencepost.jobs") == job


def test_a_refusal_leaves_the_callers_transaction_alive(conn: Connection, jobs: Jobs) -> None:
    """What is refused before it is sent costs the caller nothing."""
    job = enqueue(conn, "ok")
    with pytest.raises(InvalidJob):
        enqueue(conn, "ok", {"at": datetime.now(UTC)})
    conn.commit()
    assert jobs[job].status == "queued"


def test_aenqueue_does_the_same(database: Database, jobs: Jobs) -> None:
    """On an AsyncConnection."""

    async def go() -> int:
        async with await AsyncConnection.connect(database.worker_url, row_factory=dict_row) as conn:
            with pytest.raises(InvalidJob):
                await aenqueue(conn, "")
            return await aenqueue(conn, "ok", {"n": 1}, tenant=3, queue="mail", priority=4, after=60, max_attempts=2)

    row = jobs[asyncio.run(go())]
    assert (row.kind, row.payload, row.tenant_id, row.queue, row.priority, row.max_attempts) == (
        "ok",
        {"n": 1},
        "3",
        "mail",
        4,
        2,
    )


@pytest.mark.parametrize("row_factory", [dict_row, namedtuple_row, scalar_row], ids=lambda one: one.__name__)
@pytest.mark.parametrize("cursor_factory", [None, ClientCursor, RawCursor], ids=["Cursor", "ClientCursor", "RawCursor"])
def test_enqueue_works_on_any_connection(
    connect: Callable[..., Connection], jobs: Jobs, row_factory: Any, cursor_factory: Any
) -> None:
    """The caller's connection is the caller's: how it makes rows and cursors must not matter."""
    conn = connect(row_factory=row_factory, cursor_factory=cursor_factory)
    job = enqueue(conn, "ok", {"n": 1}, tenant=3)
    assert (type(job), jobs[job].payload) == (int, {"n": 1})


def test_enqueue_works_in_a_pipeline(conn: Connection, jobs: Jobs) -> None:
    """Many in one round trip."""
    with conn.pipeline():
        made = [enqueue(conn, "ok", {"n": n}) for n in range(5)]
    conn.commit()
    assert [jobs[job].payload["n"] for job in made] == list(range(5))


def test_any_language_calls_the_function(database: Database, verbs: Verbs) -> None:
    """By name, with arguments by name; what is left out has its default."""
    job = database.value("""select fencepost.enqueue('ok', '{"month": "2026-10"}', tenant => '2')""")
    claimed = verbs.must_claim()
    assert (claimed.id, claimed.payload, claimed.tenant, claimed.queue) == (job, '{"month": "2026-10"}', "2", "default")
    database.value("select fencepost.enqueue('ok')")
    database.value(
        """select fencepost.enqueue(kind => 'ok', queue => 'mail', priority => -3, after => interval '1 day',
                                    max_attempts => 2, max_runtime => interval '30 s', unique_key => 'k')"""
    )
    row = database.execute("select * from fencepost.jobs where queue = 'mail'")[0]
    assert (row.priority, row.max_attempts, row.max_runtime, row.unique_key) == (-3, 2, timedelta(seconds=30), "k")
    assert timedelta(hours=23) < row.run_at - row.created_at < timedelta(hours=25)


# ---- payload


EXACT: list[Any] = [
    {}, {"a": None}, {"a": True}, {"a": 2**70}, {"a": -(2**70)}, {"a": 10**400}, {"a": 0.1}, {"a": 1e15}, {"a": 1e16},
    {"a": -0.0}, {"a": 1e-300}, {"a": 5e-324}, {"a": [1, [2.5, {"b": "c"}]]}, {"a": ""}, {"": 1},
    {"a": "\t\n\x01\x7f\\\"'"}, {"a": "é\u2028😀"}, {"😀": {'"': "%s %(a)s {}"}}, {"a": Colour.red}, {"a": Number.one},
    OrderedDict(b=1, a=2), {"a": {"b": {"c": {}}}},
]  # fmt: skip


@pytest.mark.parametrize("payload", EXACT, ids=lambda one: ascii(one)[:40])
def test_a_payload_arrives_equal(conn: Connection, verbs: Verbs, payload: dict[str, Any]) -> None:
    """C81: what the handler is given compares equal to what was enqueued."""
    enqueue(conn, "ok", payload)
    conn.commit()
    assert json.loads(verbs.must_claim().payload) == payload


ODD: dict[str, tuple[Any, str]] = {
    "datetime": ({"a": datetime(2026, 1, 1, tzinfo=UTC)}, r"payload\['a'\] is a datetime"),
    "date": ({"a": date(2026, 1, 1)}, "date"),
    "timedelta": ({"a": timedelta(1)}, "timedelta"),
    "bytes": ({"a": b"x"}, "bytes"),
    "Decimal": ({"a": Decimal(1)}, "Decimal"),
    "set": ({"a": {1}}, "set"),
    "UUID": ({"a": UUID(int=1)}, "UUID"),
    "tuple": ({"a": (1, 2)}, "tuple"),
    "namedtuple": ({"a": Pair(1, 2)}, "Pair"),
    "object": ({"a": object()}, "object"),
    "complex": ({"a": 1j}, "complex"),
    "int key": ({"a": {1: 2}}, r"payload\['a'\] has the key 1 \(int\)"),
    "None key": ({None: 2}, "key None"),
    "nan": ({"a": float("nan")}, r"payload\['a'\] is nan"),
    "infinity": ({"a": [1, float("-inf")]}, r"payload\['a'\]\[1\] is -inf"),
    "a float too large": ({"a": 1e23}, "too large a float"),
    "an int too long": ({"a": 10**5000}, "payload"),
    "NUL in a value": ({"a": "x\0y"}, r"payload\['a'\] holds a NUL"),
    "NUL in a key": ({"x\0y": 1}, "key with a NUL"),
    "half a surrogate pair": ({"a": "\ud800"}, "surrogate"),
    "half a surrogate pair in a key": ({"\udfff": 1}, "surrogate"),
    "a list": ([1], "must be a dict of keyword arguments, not list"),
    "a str": ('{"a": 1}', "must be a dict of keyword arguments, not str"),
    "an int": (5, "must be a dict of keyword arguments, not int"),
}
LOOP: dict[str, Any] = {}
LOOP["a"] = LOOP
ODD["itself"] = (LOOP, "holds itself")


@pytest.mark.parametrize(("payload", "told"), ODD.values(), ids=ODD)
def test_a_payload_that_would_not_arrive_equal_is_refused_by_name(
    conn: Connection, database: Database, payload: Any, told: str
) -> None:
    """C73, C81: at enqueue, saying where and what, and no row is left that could never run."""
    with pytest.raises(InvalidJob, match=told):
        enqueue(conn, "ok", payload)
    conn.commit()
    assert count(database) == 0


@pytest.mark.parametrize("payload", ["5", "null", "[1]", '"s"', "true"])
def test_sql_refuses_a_payload_that_is_no_object(database: Database, payload: str) -> None:
    """C81: from any language."""
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="must be a JSON object"):
        database.value("select fencepost.enqueue('ok', %s)", [payload])
    assert count(database) == 0


def of_size(size: int, character: str) -> dict[str, str]:
    """Return a payload that is `size` bytes of JSON."""
    room = size - len('{"a": ""}')
    text = character * (room // len(character.encode()))
    return {"a": text + "x" * (room - len(text.encode()))}


@pytest.mark.parametrize("character", ["x", "é", "😀"])
def test_a_payload_at_the_limit_arrives_and_one_byte_more_is_refused(
    conn: Connection, verbs: Verbs, database: Database, character: str
) -> None:
    """C79: bytes, not characters; the size and the limit are told."""
    payload = of_size(LIMIT, character)
    enqueue(conn, "ok", payload)
    with pytest.raises(InvalidJob, match=f"{LIMIT + 1} bytes of JSON, and may be {LIMIT}"):
        enqueue(conn, "ok", of_size(LIMIT + 1, character))
    conn.commit()
    assert count(database) == 1
    assert json.loads(verbs.must_claim().payload) == payload


def test_sql_has_the_same_limit(database: Database) -> None:
    """C79: from any language."""
    text = json.dumps(of_size(LIMIT, "é"), ensure_ascii=False)
    assert database.value("select fencepost.enqueue('ok', %s)", [text])
    more = json.dumps(of_size(LIMIT + 1, "é"), ensure_ascii=False)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"{LIMIT + 1} bytes of JSON, and may be {LIMIT}"):
        database.value("select fencepost.enqueue('ok', %s)", [more])
    assert count(database) == 1


def test_numbers_that_the_server_writes_out_longer_are_measured_as_it_does(conn: Connection, database: Database) -> None:
    """1e-300 is six bytes here and three hundred there: refused by the function, in the same words."""
    with pytest.raises((InvalidJob, psycopg.errors.InvalidParameterValue), match="bytes of JSON"):
        enqueue(conn, "ok", {"a": [1e-300] * 10_000})
    conn.rollback()
    assert count(database) == 0


# ---- the other arguments

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no kind": ({"kind": ""}, "kind"),
    "a kind that is no text": ({"kind": b"ok"}, "kind|handler"),
    "a kind too long": ({"kind": "é" * 129}, "kind is 258 bytes long, and may be 256"),
    "NUL in the kind": ({"kind": "a\0b"}, "kind"),
    "an empty queue": ({"queue": ""}, "queue"),
    "a queue too long": ({"queue": "x" * 129}, "queue is 129 bytes long"),
    "an empty key": ({"unique_key": ""}, "unique_key"),
    "a key too long": ({"unique_key": "x" * 1025}, "unique_key is 1025 bytes long"),
    "a tenant too long": ({"tenant": "x" * 257}, "tenant is 257 bytes long"),
    "an empty tenant": ({"tenant": ""}, "tenant is blank"),
    "a blank tenant": ({"tenant": " \t"}, "tenant is blank"),
    "NUL in the tenant": ({"tenant": "a\0"}, "tenant"),
    "a bool as tenant": ({"tenant": True}, "not a bool"),
    "a float as tenant": ({"tenant": 1.0}, "not a float"),
    "a priority that is no int": ({"priority": "high"}, "priority"),
    "a bool as priority": ({"priority": True}, "priority"),
    "a priority too large": ({"priority": 2**31}, "priority"),
    "no attempts": ({"max_attempts": 0}, "max_attempts"),
    "too many attempts": ({"max_attempts": 2**31}, "max_attempts"),
    "a bool as attempts": ({"max_attempts": True}, "max_attempts"),
    "both times": ({"after": 1, "run_at": datetime.now(UTC)}, "run_at or after, not both"),
    "a naive time": ({"run_at": datetime(2026, 10, 1, 12)}, "time zone"),  # noqa: DTZ001  # the case
    "a time as text": ({"run_at": "2026-10-01T12:00:00"}, "run_at"),
    "a time as text with offset": ({"run_at": "2026-10-01T12:00:00+02:00"}, "run_at"),
    "a date as time": ({"run_at": date(2026, 10, 1)}, "run_at"),
    "a time beyond what the table takes": ({"run_at": datetime.max.replace(tzinfo=UTC)}, "run_at"),
    "a negative wait": ({"after": -1}, "negative"),
    "an infinite wait": ({"after": float("inf")}, "finite"),
    "a wait that is no number": ({"after": float("nan")}, "finite"),
    "a wait beyond all dates": ({"after": timedelta.max}, "after"),
    "a wait as text": ({"after": "5"}, "after|duration"),
    "no runtime": ({"max_runtime": 0}, "max_runtime must be more than 0"),
    "a negative runtime": ({"max_runtime": timedelta(-1)}, "negative"),
    "a runtime beyond what the table takes": ({"max_runtime": timedelta(days=20_000)}, "max_runtime"),
}


@pytest.mark.parametrize(("arguments", "told"), WRONG.values(), ids=WRONG)
def test_an_argument_that_is_wrong_is_refused_by_name(
    conn: Connection, database: Database, arguments: dict[str, Any], told: str
) -> None:
    """InvalidJob each time, whose text names the argument: never a driver's error, and never a row."""
    with pytest.raises((InvalidJob, UnknownHandler), match=told):
        enqueue(conn, **{"kind": "ok", **arguments})
    assert conn.info.transaction_status == TransactionStatus.IDLE, "it was sent"
    assert count(database) == 0


@pytest.mark.parametrize(
    ("tenant", "kept"), [(7, "7"), ("a b", "a b"), (UUID(int=5), str(UUID(int=5))), (0, "0"), (None, None)]
)
def test_a_tenant_is_kept_as_text(conn: Connection, jobs: Jobs, tenant: Any, kept: str | None) -> None:
    """An int, a str or a UUID."""
    job = enqueue(conn, "ok", tenant=tenant)
    conn.commit()
    assert jobs[job].tenant_id == kept


@pytest.mark.usefixtures("no_handlers")
def test_a_job_without_a_tenant_is_refused_where_its_handler_needs_one(conn: Connection, jobs: Jobs) -> None:
    """C64: where the handler is known, at enqueue."""

    @handler("count")
    def count_invoices(job: object) -> None: ...

    @handler("tidy", tenantless=True)
    def tidy(job: object) -> None: ...

    with pytest.raises(InvalidJob, match="'count' needs a tenant"):
        enqueue(conn, count_invoices)
    mine, theirs = enqueue(conn, count_invoices, tenant=1), enqueue(conn, tidy)
    conn.commit()
    assert (jobs[mine].kind, jobs[theirs].kind) == ("count", "tidy")


@pytest.mark.usefixtures("no_handlers")
def test_a_function_that_is_no_handler_is_refused(conn: Connection) -> None:
    """With its name and the cure."""
    with pytest.raises(UnknownHandler, match="decorate it with @handler"):
        enqueue(conn, count)


def test_sql_refuses_a_blank_tenant_and_no_kind(database: Database) -> None:
    """C64: from any language."""
    for call in ("'ok', tenant => ''", "'ok', tenant => E' \\t\\n'", "''", "null"):
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            database.value(f"select fencepost.enqueue({call})")
    assert count(database) == 0


# ---- time


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_a_time_with_its_zone_means_the_same_in_every_session(
    conn: Connection, jobs: Jobs, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C84: neither the role's zone nor the process' decides."""
    monkeypatch.setenv("TZ", zone)
    conn.execute(f"set timezone = '{zone}'")
    wanted = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    told = [wanted, wanted.astimezone(ZoneInfo("America/New_York")), wanted.astimezone(timezone(timedelta(hours=14)))]
    made = [enqueue(conn, "ok", run_at=one) for one in told]
    conn.commit()
    assert {jobs[job].run_at for job in made} == {wanted}


@pytest.mark.parametrize("after", [1.5, timedelta(seconds=1.5)])
def test_a_wait_counts_from_the_transactions_start(conn: Connection, jobs: Jobs, after: Any) -> None:
    """In seconds or as a timedelta, by the database's clock."""
    job = enqueue(conn, "ok", after=after)
    conn.commit()
    assert jobs[job].run_at - jobs[job].created_at == timedelta(seconds=1.5)


# ---- unique keys


def test_a_key_that_is_taken_gives_the_job_that_has_it(conn: Connection, verbs: Verbs, jobs: Jobs) -> None:
    """While that one is queued or running; once it rests, the key is free."""
    job = enqueue(conn, "ok", unique_key="k")
    assert enqueue(conn, "ok", {"another": 1}, unique_key="k") == job
    conn.commit()
    claimed = verbs.must_claim()
    assert enqueue(conn, "ok", unique_key="k") == job
    conn.commit()
    verbs.finish(claimed, "done")
    assert enqueue(conn, "ok", unique_key="k") != job


def test_twenty_sessions_enqueue_one_key_at_once(database: Database) -> None:
    """C90: one live job at the end, whoever rolls back; 23505 reaches nobody."""
    together = threading.Barrier(20)
    done: list[tuple[int, bool]] = []

    def one(number: int) -> None:
        with database.worker_conn(autocommit=False) as conn:
            together.wait()
            job = enqueue(conn, "ok", {"session": number}, unique_key="k")
            if number % 4 == 0:
                conn.rollback()
            else:
                conn.commit()
            done.append((job, number % 4 != 0))

    with ThreadPoolExecutor(20) as threads:
        list(threads.map(one, range(20)))
    assert len(done) == 20
    living = {row.id for row in database.execute("select id from fencepost.jobs")}
    assert len(living) == 1
    assert {job for job, committed in done if committed} == living


def test_the_first_of_a_race_rolls_back_after_the_others_have_waited(database: Database) -> None:
    """C90: they wait for it, and then one of them makes the job."""
    started = threading.Semaphore(0)

    def wait_for_it(number: int) -> int:
        with database.worker_conn() as conn:
            started.release()
            return enqueue(conn, "ok", {"session": number}, unique_key="k")

    with database.worker_conn(autocommit=False) as first, ThreadPoolExecutor(5) as threads:
        enqueue(first, "ok", unique_key="k")
        others = [threads.submit(wait_for_it, number) for number in range(5)]
        for _ in others:
            started.acquire()
        first.rollback()
        ids = {other.result(10) for other in others}
    assert len(ids) == 1
    assert count(database) == 1


def test_a_key_whose_job_comes_to_rest_between_the_two_looks_is_enqueued(fresh_database: Database) -> None:
    """The insert still found it living, the read no longer does: then there is a new job, not none."""
    fresh_database.execute(
        """create function test.wait() returns trigger language plpgsql security definer as
           $$ begin perform pg_advisory_lock(1); perform pg_advisory_unlock(1); return null; end $$;
           create trigger between_both after insert on fencepost.jobs for each statement execute function test.wait()"""
    )

    def enqueue_again() -> int:
        with fresh_database.worker_conn() as conn:
            return enqueue(conn, "ok", unique_key="k")

    with fresh_database.conn() as holder, fresh_database.worker_conn() as conn, ThreadPoolExecutor(1) as threads:
        first = enqueue(conn, "ok", unique_key="k")
        claimed = Verbs(conn).must_claim()
        holder.execute("select pg_advisory_lock(1)")
        second = threads.submit(enqueue_again)
        waits = "select exists (select from pg_locks where not granted and locktype = 'advisory')"
        wait_until(lambda: fresh_database.value(waits), what="the enqueue between its insert and its read")
        Verbs(conn).finish(claimed, "done")
        holder.execute("select pg_advisory_unlock(1)")
        job = second.result(10)
    assert job != first
    assert fresh_database.value("select status from fencepost.jobs where id = %s", [job]) == "queued"


# ---- notifications


@pytest.fixture
def listener(connect: Callable[..., Connection], database: Database) -> Callable[[], list[psycopg.Notify]]:
    """A session that listens, and gives what it has heard so far: `select 1` is answered after what was sent before.

    And a supervisor that is to be told.
    """
    database.add_supervisor()
    conn = connect()
    heard: list[psycopg.Notify] = []
    conn.add_notify_handler(heard.append)
    conn.execute("listen fencepost")

    def so_far() -> list[psycopg.Notify]:
        conn.execute("select 1")
        return heard

    return so_far


def test_a_notification_is_sent_with_the_commit_and_not_before(
    conn: Connection, listener: Callable[[], list[psycopg.Notify]]
) -> None:
    """C105: a wake-up before the commit would be wasted."""
    enqueue(conn, "ok", queue="mail")
    assert listener() == []
    conn.rollback()
    assert listener() == []
    enqueue(conn, "ok", queue="mail")
    conn.commit()
    assert [notify.payload for notify in listener()] == ["mail"]


def test_notifications_are_small_and_few(conn: Connection, listener: Callable[[], list[psycopg.Notify]]) -> None:
    """C78: a payload of 100 kB or of four-byte characters is not in them, and a bulk enqueue sends one a queue."""
    enqueue(conn, "ok", {"a": "x" * 100_000})
    enqueue(conn, "ok", {"a": "😀" * 2000}, queue="é" * 64)
    for number in range(500):
        enqueue(conn, "ok", {"n": number})
    conn.commit()
    heard = listener()
    assert len(heard) == 2
    assert max(len(notify.payload.encode()) for notify in heard) < 200


def test_a_job_that_is_due_later_is_told_of_once(conn: Connection, listener: Callable[[], list[psycopg.Notify]]) -> None:
    """So that the supervisor knows until when it may sleep; of one commit it is told once."""
    enqueue(conn, "ok", after=60)
    enqueue(conn, "ok", run_at=datetime.now(UTC) + timedelta(hours=1))
    conn.commit()
    assert [told.payload for told in listener()] == ["default"]


@pytest.mark.parametrize(
    ("supervisors", "heard"),
    [
        ([], False),
        ([(["*"], False)], False),
        ([(["default", "post"], True)], False),
        ([(["default", "mail"], True)], True),
        ([(["*"], False), (["*"], True)], True),
    ],
    ids=["none", "all busy", "another's", "its queue", "one of two"],
)
def test_it_is_notified_only_where_a_supervisor_of_the_queue_is_to_be_told(
    conn: Connection, database: Database, listener: Callable[[], list[psycopg.Notify]],
    supervisors: list[tuple[list[str], bool]], *, heard: bool,
) -> None:  # fmt: skip
    """Commits that notify wait for each other; and what its workers find by themselves a supervisor need not be told."""
    database.execute("delete from fencepost.supervisors")
    for queues, told in supervisors:
        database.add_supervisor(queues=queues, told=told)
    enqueue(conn, "ok", queue="mail")
    conn.commit()
    assert [told.payload for told in listener()] == (["mail"] if heard else [])


def test_a_key_that_is_taken_wakes_nobody(conn: Connection, listener: Callable[[], list[psycopg.Notify]]) -> None:
    """There is no new work."""
    for _ in range(2):
        enqueue(conn, "ok", unique_key="k")
        conn.commit()
    assert len(listener()) == 1


@pytest.mark.parametrize("queue", ["x" * 80 + "1", "x" * 80 + "2", "My Queue", "a.b", 'x";drop', "😀", "*"])
def test_an_odd_queue_is_a_queue_like_any_other(
    conn: Connection, verbs: Verbs, listener: Callable[[], list[psycopg.Notify]], queue: str
) -> None:
    """C85: nothing is cut at 63 bytes, and nothing crosses over."""
    job = enqueue(conn, "ok", queue=queue)
    conn.commit()
    assert [notify.payload for notify in listener()] == [queue]
    assert verbs.lanes(queue) == [(queue, 0)]
    assert verbs.claim(lanes=[lane(queue + "x"), lane(queue[:-1])]) is None
    assert verbs.must_claim(lanes=[lane(queue)]).id == job


# ---- the worker's rights


def test_enqueue_needs_no_right_on_the_table(fresh_database: Database) -> None:
    """An application needs the function alone."""
    fresh_database.execute(f"revoke all on all tables in schema fencepost from {fresh_database.worker}")
    with fresh_database.worker_conn() as conn:
        assert enqueue(conn, "ok", unique_key="k") == enqueue(conn, "ok", unique_key="k")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="jobs"):
            conn.execute("select * from fencepost.jobs")


@pytest.mark.parametrize("function", ["enqueue", "hold", "finish"])
def test_nobody_may_call_the_functions_unasked(fresh_database: Database, function: str) -> None:
    """Definer's functions are not for everyone: the right is given, not there from the start."""
    fresh_database.execute(f"revoke execute on function fencepost.{function} from {fresh_database.worker}")
    arguments = {"enqueue": "'ok'", "hold": "1, 1, 'x'", "finish": "1, 1, 'x', 'done'"}[function]
    with fresh_database.worker_conn() as conn, pytest.raises(psycopg.errors.InsufficientPrivilege, match=function):
        conn.execute(f"select fencepost.{function}({arguments})")


def test_a_search_path_of_the_callers_does_not_lead_a_definers_function_astray(fresh_database: Database) -> None:
    """A function or operator that the caller puts in front is not called with the owner's rights."""
    fresh_database.execute(f"grant create on schema test to {fresh_database.worker}")
    with fresh_database.worker_conn() as conn:
        conn.execute("set search_path = test, pg_catalog")
        conn.execute(
            """create function test.jsonb_typeof(jsonb) returns text language plpgsql as
               $$ begin raise exception 'called with the rights of %', current_user; end $$"""
        )
        conn.execute("create function test.now() returns timestamptz language sql as $$ select '2000-01-01'::timestamptz $$")
        job = enqueue(conn, "ok")
    assert fresh_database.value("select run_at from fencepost.jobs where id = %s", [job]).year > 2000
