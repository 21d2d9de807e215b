"""Many jobs at once are enqueued by the rules of one, all or none, and in memory that does not grow with them."""

from __future__ import annotations

import asyncio
import random
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection, ClientCursor, Connection, RawCursor
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row, scalar_row

from fencepost import InvalidJob, Job, NewJob, UnknownHandler, aenqueue_many, enqueue, enqueue_many, handler
from fencepost.jobs.enqueue_many import MOST_JOBS, MOST_TEXT
from fencepost.jobs.pooler import PooledConnection
from fencepost.testing import run
from support.databases import Database
from support.jobs import Jobs
from support.poolers import Pooler, program
from support.verbs import Verbs
from support.waiting import wait_until

NUMBERS = """
    select (payload ->> 'n')::int as n
    from unnest(%s::bigint[]) with ordinality as i (id, place) join fencepost.jobs using (id) order by place
"""
BY_SQL = """
    select fencepost.enqueue_many(array_fill('ok'::text, array[cardinality(keys)]), unique_key => keys)
    from (select %s::text[]) as s (keys)
"""

SEVERAL = 2 * MOST_JOBS + 1
"""More jobs than two messages take."""


@pytest.fixture
def conn(connect: Callable[..., Connection]) -> Connection:
    """A connection as an application has it: in a transaction."""
    return connect(autocommit=False)


@pytest.fixture
def no_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty registry, put back afterwards."""
    monkeypatch.setattr("fencepost.handlers._handlers", {})


def several(number: int = SEVERAL) -> Iterator[NewJob]:
    return (NewJob("ok", {"n": n}) for n in range(number))


def numbers(database: Database, ids: list[int]) -> list[int]:
    """Return the numbers in the payloads of `ids`, in their order."""
    return [row.n for row in database.execute(NUMBERS, [ids])]


def count(database: Database) -> int:
    return int(database.value("select count(*) from fencepost.jobs"))


# ---- all of them, in order


def test_a_hundred_thousand_jobs_are_enqueued_in_the_callers_transaction(conn: Connection, database: Database) -> None:
    """Nobody sees one of them before it commits; their ids come back in their order, and they are claimed in it."""
    ids = enqueue_many(conn, several(100_000))
    assert count(database) == 0
    conn.commit()
    assert numbers(database, ids) == list(range(100_000))
    assert ids == sorted(set(ids))


def test_a_rollback_takes_all_of_them_back(conn: Connection, database: Database) -> None:
    """Also those of messages that were sent long ago."""
    conn.execute("select 1")
    assert len(enqueue_many(conn, several())) == SEVERAL
    conn.rollback()
    assert count(database) == 0


@pytest.mark.parametrize("number", [0, 1, MOST_JOBS, MOST_JOBS + 1])
def test_any_number_of_jobs_is_taken(conn: Connection, database: Database, number: int) -> None:
    """None, too, and as many as just fit a message."""
    ids = enqueue_many(conn, list(several(number)))
    conn.commit()
    assert numbers(database, ids) == list(range(number))


def test_in_autocommit_they_are_a_transaction_of_their_own(connect: Callable[..., Connection], database: Database) -> None:
    """All of them, or none."""
    conn = connect()
    ids = enqueue_many(conn, several())
    assert numbers(database, ids) == list(range(SEVERAL))
    with pytest.raises(InvalidJob):
        enqueue_many(conn, [*several(), NewJob("")])
    assert count(database) == SEVERAL
    assert conn.info.transaction_status == TransactionStatus.IDLE


def test_a_job_arrives_with_all_that_was_said_of_it(conn: Connection, jobs: Jobs) -> None:
    """Each with its own: what one says does not reach the next, and what it leaves out has its default."""
    due = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    one, other, plain, late = enqueue_many(
        conn,
        [
            NewJob("a", {"q": 'x"y\\z,{}', "é": None}, tenant='t"\\,{}', queue="mail", priority=-3, after=1.5, max_attempts=2,
                   max_runtime=timedelta(days=2, seconds=3), unique_key='k"\\,'),
            NewJob("b", tenant=7, run_at=due, max_runtime=30),
            NewJob("c"),
            NewJob("NULL", {}, tenant=None, queue="null", after=timedelta(days=40)),
        ],
    )  # fmt: skip
    conn.commit()
    row = jobs[one]
    assert (row.kind, row.payload, row.tenant_id, row.queue) == ("a", {"q": 'x"y\\z,{}', "é": None}, 't"\\,{}', "mail")
    assert (row.priority, row.max_attempts, row.max_runtime, row.unique_key) == (-3, 2, timedelta(days=2, seconds=3), 'k"\\,')
    assert row.run_at - row.created_at == timedelta(seconds=1.5)
    row = jobs[other]
    assert (row.kind, row.tenant_id, row.run_at, row.max_runtime) == ("b", "7", due, timedelta(seconds=30))
    row = jobs[plain]
    assert (row.kind, row.payload, row.tenant_id, row.queue, row.priority) == ("c", {}, None, "default", 0)
    assert (row.max_attempts, row.max_runtime, row.unique_key, row.run_at) == (None, None, None, row.created_at)
    row = jobs[late]
    assert (row.kind, row.queue, row.run_at - row.created_at) == ("NULL", "null", timedelta(days=40))


def test_large_payloads_travel_in_small_messages(conn: Connection, database: Database) -> None:
    """A message is full by its size, too; a payload that is more than one all alone is one."""
    ids = enqueue_many(conn, (NewJob("ok", {"n": n, "text": "x" * (MOST_TEXT + n)}) for n in range(20)))
    conn.commit()
    assert numbers(database, ids) == list(range(20))


def test_memory_does_not_grow_with_the_jobs(conn: Connection) -> None:
    """What is taken from the iterable is sent before much more is: 60 MiB of payloads go through a few."""
    text = "x" * 500_000

    def jobs() -> Iterator[NewJob]:
        for n in range(125):
            yield NewJob("ok", {"n": n, "text": text + str(n)})

    enqueue_many(conn, several(3))
    tracemalloc.start()
    try:
        enqueue_many(conn, jobs())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 * 2**20


# ---- wherever enqueue works


def test_aenqueue_many_does_the_same(database: Database) -> None:
    """On an AsyncConnection."""

    async def go() -> list[int]:
        async with await AsyncConnection.connect(database.worker_url, row_factory=dict_row) as conn:
            kept = await aenqueue_many(conn, several())
            with pytest.raises(InvalidJob, match=rf"jobs\[{SEVERAL}\]: kind"):
                await aenqueue_many(conn, [*several(), NewJob("")])
            with pytest.raises(InvalidJob, match=r"jobs\[1\]: the payload is \d+ bytes"):
                await aenqueue_many(conn, [NewJob("ok"), NewJob("ok", {"a": [1e-300] * 10_000})])
            return kept

    ids = asyncio.run(go())
    assert numbers(database, ids) == list(range(SEVERAL))
    assert count(database) == SEVERAL


@pytest.mark.parametrize("row_factory", [dict_row, scalar_row], ids=lambda one: one.__name__)
@pytest.mark.parametrize("cursor_factory", [None, ClientCursor, RawCursor], ids=["Cursor", "ClientCursor", "RawCursor"])
def test_enqueue_many_works_on_any_connection(
    connect: Callable[..., Connection], database: Database, row_factory: Any, cursor_factory: Any
) -> None:
    """How the caller's connection makes rows and cursors must not matter."""
    ids = enqueue_many(connect(row_factory=row_factory, cursor_factory=cursor_factory), several())
    assert numbers(database, ids) == list(range(SEVERAL))


def test_enqueue_many_works_in_a_pipeline(conn: Connection, database: Database) -> None:
    """In one that the caller has opened, before anything else and behind something."""
    with conn.pipeline():
        ids = enqueue_many(conn, several())
        conn.execute("select 1")
        ids += enqueue_many(conn, several())
    assert count(database) == 0
    conn.commit()
    assert numbers(database, ids) == [*range(SEVERAL), *range(SEVERAL)]


def test_enqueue_many_works_behind_a_pooler(database: Database) -> None:
    """In transaction mode: nothing is left to the session that its clients share. Also on a connection of our own to it."""
    if program() is None:
        pytest.skip("pgbouncer is not installed")
    ids: list[int] = []
    with closing(Pooler(database, default_pool_size=1)) as pooler:
        with psycopg.connect(pooler.url()) as one, psycopg.connect(pooler.url()) as other:
            for conn in (one, other, one):
                ids += enqueue_many(conn, several(7 * MOST_JOBS))
                conn.commit()
        with PooledConnection.connect(pooler.url(), autocommit=True) as pooled:
            pooled.adopt("ours", {})
            ids += enqueue_many(pooled, several())
    assert numbers(database, ids) == [*range(7 * MOST_JOBS)] * 3 + [*range(SEVERAL)]


def test_the_iterable_may_use_the_connection(conn: Connection, database: Database) -> None:
    """Jobs are often made of what the same transaction reads and writes."""

    def jobs() -> Iterator[NewJob]:
        for n in range(SEVERAL):
            if n % 700 == 0:
                conn.execute("insert into test.rows (job, attempt, note) values (%s, 1, '')", [n])
            yield NewJob("ok", {"n": n + conn.execute("select 0").fetchall()[0][0] if n % 900 == 0 else n})

    ids = enqueue_many(conn, jobs())
    conn.commit()
    assert numbers(database, ids) == list(range(SEVERAL))
    assert database.value("select count(*) from test.rows") == 3


@pytest.mark.usefixtures("no_handlers")
def test_what_a_job_enqueues_is_its_tenants_unless_told_otherwise(database: Database) -> None:
    """In its own transaction, in one that it has bound, and by SQL; None says that the job has none."""
    made = [NewJob("unknown.here"), NewJob("unknown.here", tenant=8), NewJob("unknown.here", tenant=None)]

    @handler("follows", transaction=True)
    def follows(job: Job) -> None:
        enqueue_many(job.conn, made)
        job.conn.execute("select fencepost.enqueue_many('{unknown.here}')")
        with psycopg.connect(database.url) as other:
            job.bind(other)
            enqueue_many(other, made)

    with database.conn(autocommit=False) as conn:
        assert run(conn, follows, tenant=7).error is None
        conn.commit()
    found = [row.tenant_id for row in database.execute("select tenant_id from fencepost.jobs order by created_at, id")]
    assert found == ["7", "8", None, "7", "7", "8", None]


@pytest.mark.usefixtures("no_handlers")
def test_a_job_without_a_tenant_is_refused_where_its_handler_needs_one(conn: Connection, database: Database) -> None:
    """C64: by its place, on a connection of no job."""
    handler("needs")(lambda job: None)
    with pytest.raises(InvalidJob, match=r"jobs\[1\]: a job of kind 'needs' needs a tenant"):
        enqueue_many(conn, [NewJob("needs", tenant=1), NewJob("needs")])
    conn.commit()
    assert count(database) == 0


# ---- a wrong one


WRONG: dict[str, tuple[Any, str]] = {
    "no kind": (NewJob(""), "kind must be"),
    "nan": (NewJob("ok", {"a": {"b": float("nan")}}), r"payload\['a'\]\['b'\] is nan"),
    "NUL in a value": (NewJob("ok", {"a": "x\0"}), "holds a NUL"),
    "a payload too large": (NewJob("ok", {"a": "x" * 2**20}), "bytes of JSON, and may be 1048576"),
    "a payload too large for the server": (NewJob("ok", {"a": [1e-300] * 10_000}), "bytes of JSON, and may be 1048576"),
    "a blank tenant": (NewJob("ok", tenant=" "), "tenant is blank"),
    "both times": (NewJob("ok", after=1, run_at=datetime.now(UTC)), "run_at or after"),
    "no attempts": (NewJob("ok", max_attempts=0), "max_attempts"),
    "a negative runtime": (NewJob("ok", max_runtime=-1), "max_runtime"),
    "a key too long": (NewJob("ok", unique_key="x" * 1025), "unique_key"),
    "a dict": ({"kind": "ok"}, "is a dict: give NewJob"),
}


@pytest.mark.parametrize(("wrong", "told"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("place", [0, SEVERAL])
def test_a_wrong_job_is_named_by_its_place_and_none_is_enqueued(
    conn: Connection, database: Database, place: int, wrong: Any, told: str
) -> None:
    """Also behind jobs that were sent before; what else the caller's transaction has written stays."""
    kept = enqueue(conn, "kept")
    jobs = [*several(place), wrong, *several(3)]
    with pytest.raises(InvalidJob, match=rf"^jobs\[{place}\]:? .*{told}"):
        enqueue_many(conn, jobs)
    conn.commit()
    assert [row.id for row in database.execute("select id from fencepost.jobs")] == [kept]


def test_a_keyed_job_that_only_the_server_finds_wrong_is_named_by_its_own_place(conn: Connection) -> None:
    """It travels at another one."""
    wrong = NewJob("ok", {"a": [1e-300] * 10_000}, unique_key="a")
    with pytest.raises(InvalidJob, match=r"^jobs\[1\]: the payload is"):
        enqueue_many(conn, [NewJob("ok", unique_key="b"), wrong, *several(3)])


def test_a_function_that_is_no_handler_is_refused_by_its_place(conn: Connection) -> None:
    """With the cure, as by enqueue."""
    with pytest.raises(UnknownHandler, match=r"^jobs\[1\]: .*decorate it with @handler"):
        enqueue_many(conn, [NewJob("ok"), NewJob(count)])


def test_an_error_of_the_iterables_own_comes_out_and_none_is_enqueued(conn: Connection, database: Database) -> None:
    """As it is, whatever it is."""

    def jobs() -> Iterator[NewJob]:
        yield from several()
        raise psycopg.errors.InvalidParameterValue("of another server")

    with pytest.raises(psycopg.errors.InvalidParameterValue, match="of another server"):
        enqueue_many(conn, jobs())
    conn.commit()
    assert count(database) == 0


# ---- unique keys


def test_a_key_gives_one_job_within_a_bulk_and_beyond_it(conn: Connection, verbs: Verbs, jobs: Jobs) -> None:
    """The id of the one that is there comes back, queued or running; a key is its tenant's; the first of a bulk has its way."""
    there = enqueue(conn, "ok", unique_key="k")
    conn.commit()
    verbs.must_claim()
    keys = [("k", None), ("z", 1), ("a", 1), ("z", 2), ("z", 1)]
    made = [NewJob("ok", {"n": n}, unique_key=key, tenant=tenant) for n, (key, tenant) in enumerate(keys)]
    made.insert(1, NewJob("ok", {"n": 9}))
    ids = enqueue_many(conn, made)
    again = enqueue_many(conn, reversed(made))
    conn.commit()
    assert ids[0] == there
    assert (ids[2], len(set(ids))) == (ids[5], 5)
    assert [jobs[job].payload.get("n") for job in ids[1:]] == [9, 1, 2, 3, 1]
    assert again[::-1][2:] == ids[2:]


def test_two_bulks_with_the_same_keys_in_another_order_do_not_deadlock(database: Database) -> None:
    """Rule 18: whoever comes second waits for the first, at the first key that both have, though they take many messages."""
    keys = [f"k{number}" for number in range(SEVERAL)]

    def one(seed: int) -> dict[str, int]:
        mine = random.Random(seed).sample(keys, len(keys))
        with database.worker_conn(autocommit=False) as conn:
            return dict(zip(mine, enqueue_many(conn, [NewJob("ok", unique_key=key) for key in mine]), strict=True))

    with ThreadPoolExecutor(4) as threads:
        first, *others = threads.map(one, range(4))
    assert all(other == first for other in others)
    assert count(database) == len(keys)


def test_a_bulk_holds_no_key_behind_one_that_it_waits_for(database: Database) -> None:
    """Neither in Python, over many messages, nor in SQL."""
    keys = [f"{number:04}" for number in range(SEVERAL)]
    ways: list[Callable[[Connection], Any]] = [
        lambda conn: enqueue_many(conn, [NewJob("ok", unique_key=key) for key in reversed(keys)]),
        lambda conn: conn.execute(BY_SQL, [keys[::-1]]),
    ]
    for way in ways:
        with (
            database.worker_conn(autocommit=False) as first,
            database.worker_conn() as second,
            ThreadPoolExecutor(1) as threads,
        ):
            enqueue(first, "ok", unique_key=keys[0])
            waiting = threads.submit(way, second)
            pid = second.info.backend_pid
            wait_until(lambda pid=pid: database.value("select cardinality(pg_blocking_pids(%s)) > 0", [pid]), what="the bulk")
            # Were any of them the bulk's already, this would be the deadlock.
            enqueue(first, "ok", unique_key=keys[-1])
            first.rollback()
            waiting.result(30)
        assert count(database) == len(keys)
        database.execute("delete from fencepost.jobs")


# ---- notifications


@pytest.fixture
def listener(connect: Callable[..., Connection], database: Database) -> Callable[[], list[str]]:
    """A session that listens, and gives the queues that it has heard of so far, where a supervisor is to be told."""
    database.add_supervisor()
    conn = connect()
    heard: list[str] = []
    conn.add_notify_handler(lambda told: heard.append(told.payload))
    conn.execute("listen fencepost")

    def so_far() -> list[str]:
        conn.execute("select 1")
        return sorted(heard)

    return so_far


def test_a_bulk_tells_once_of_each_queue_with_its_commit(conn: Connection, listener: Callable[[], list[str]]) -> None:
    """However many messages it took; not of a queue where every key was taken."""
    enqueue(conn, "ok", queue="taken", unique_key="k")
    conn.commit()
    assert listener() == ["taken"]
    made = [NewJob("ok", queue="taken", unique_key="k"), NewJob("ok", queue="keyed", unique_key="l")]
    enqueue_many(conn, [*several(), *made, *(NewJob("ok", queue="mail", after=60) for _ in range(SEVERAL))])
    assert listener() == ["taken"]
    conn.commit()
    assert listener() == ["default", "keyed", "mail", "taken"]


# ---- SQL


def test_sql_enqueues_a_set(database: Database) -> None:
    """Each argument an array, as array_agg makes them; the ids in the order of the jobs."""
    ids = database.value(
        """select fencepost.enqueue_many(array_agg('ok'::text), array_agg(jsonb_build_object('n', n)),
                                         tenant => array_agg((n %% 3)::text), priority => array_agg(n))
           from generate_series(0, %s) n""",
        [SEVERAL],
    )
    assert numbers(database, ids) == list(range(SEVERAL + 1))
    as_said = "select count(*) from fencepost.jobs where priority = (payload ->> 'n')::int and tenant_id = (priority % 3)::text"
    assert database.value(as_said) == SEVERAL + 1


def test_what_sql_leaves_out_has_its_default(database: Database) -> None:
    """A whole array, and single elements of one."""
    database.value("select fencepost.enqueue_many('{ok,ok}')")
    database.value(
        """select fencepost.enqueue_many('{ok,ok}', queue => '{NULL,mail}', priority => '{NULL,7}', max_attempts => '{NULL,3}',
                                         tenant => '{NULL,a}', after => array[null, interval '1 min'])"""
    )
    query = "select queue, priority, tenant_id, max_attempts, run_at - created_at as wait from fencepost.jobs order by id"
    plain = ("default", 0, None, None, timedelta(0))
    assert database.execute(query) == [plain, plain, plain, ("mail", 7, "a", 3, timedelta(minutes=1))]


def test_sql_enqueues_an_empty_set(database: Database) -> None:
    """There array_agg gives null, and no job is no error."""
    assert database.value("select fencepost.enqueue_many(array_agg('ok'::text)) from generate_series(1, 0)") == []
    assert database.value("select fencepost.enqueue_many('{}')") == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("'{ok,NULL}'", "a job needs a kind"),
        ("""'{ok,ok}', array['{}', '5']::jsonb[]""", "must be a JSON object, not number"),
        ("""'{ok,ok}', array['{}', null]::jsonb[]""", "must be a JSON object, not null"),
        ("""'{ok,ok}', array['{}', jsonb_build_object('a', repeat('x', 1048576))]""", "1048585 bytes of JSON"),
        ("""'{ok,ok}', tenant => array['a', E' \\t']""", "the tenant is blank"),
        ("'{ok,ok}', run_at => array[null, now()], after => array[null, interval '1 s']", "give run_at or after"),
    ],
)
def test_sql_refuses_what_enqueue_refuses_and_names_it(database: Database, arguments: str, told: str) -> None:
    """C64, C81, C79: from any language, whichever job it is."""
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=told) as refused:
        database.value(f"select fencepost.enqueue_many({arguments})")
    assert refused.value.diag.message_detail == "This is said of job 2"
    assert count(database) == 0


@pytest.mark.parametrize("arguments", ["'{ok,ok}', '{}'::jsonb[]", "'{ok}', queue => '{a,b}'", "null, tenant => '{a}'"])
def test_sql_refuses_arrays_that_do_not_go_together(database: Database, arguments: str) -> None:
    """Which job has which would be a guess."""
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="an element for each"):
        database.value(f"select fencepost.enqueue_many({arguments})")


def test_nobody_may_call_it_unasked_nor_needs_more_than_that(fresh_database: Database) -> None:
    """The right is given, not there from the start; none on the table is needed."""
    fresh_database.execute(f"revoke all on all tables in schema fencepost from {fresh_database.worker}")
    with fresh_database.worker_conn() as conn:
        assert len(enqueue_many(conn, [NewJob("ok"), NewJob("ok", unique_key="k")])) == 2
        fresh_database.execute(f"revoke execute on function fencepost.enqueue_many from {fresh_database.worker}")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="enqueue_many"):
            enqueue_many(conn, several(1))
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="refusal"):
            conn.execute("select fencepost.refusal('ok', '{}', null, null, null)")
