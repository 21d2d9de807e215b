"""A claim takes one due job, counts it and fences it, committed before any of the job's code runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from psycopg import Connection

from fencepost.jobs.claim import held
from support.databases import Database
from support.jobs import Jobs
from support.servers import Server
from support.verbs import ASKS_NOTHING, Verbs, lane, pages_of, pages_of_a_claim

PLANS = [
    (),
    ("hashjoin", "mergejoin", "material", "hashagg", "sort"),
    ("nestloop",),
    ("nestloop", "material", "memoize"),
    ("indexscan", "indexonlyscan", "bitmapscan"),
    ("seqscan", "bitmapscan", "sort", "incremental_sort"),
    ("hashjoin", "mergejoin", "nestloop", "material", "hashagg", "sort", "indexscan", "bitmapscan", "seqscan"),
]


@pytest.mark.parametrize("off", PLANS, ids=lambda off: "without " + ("-".join(off) or "nothing"))
@pytest.mark.parametrize("analyzed", [False, True], ids=["", "analyzed"])
def test_a_claim_takes_one_row_whatever_plan_the_server_chooses(
    verbs: Verbs, database: Database, jobs: Jobs, off: tuple[str, ...], *, analyzed: bool
) -> None:
    """C98: a plan that repeats a subquery must not hand out the whole queue."""
    waiting = {jobs.enqueue("ok") for _ in range(25)}
    if analyzed:
        database.execute("analyze fencepost.jobs")
    for name in off:
        verbs.conn.execute(f"set enable_{name} = off")
    for taken in range(1, 6):
        claimed = verbs.must_claim(lanes=[lane(), lane(priority=1)])
        waiting.remove(claimed.id)
        assert database.value("select count(*) from fencepost.jobs where status = 'running'") == taken
    assert database.value("select max(attempts) from fencepost.jobs") == 1


def test_a_prepared_claim_takes_one_row_under_a_generic_plan(verbs: Verbs, database: Database, jobs: Jobs) -> None:
    """A worker's claims are prepared, and their plan may stop to depend on the parameters."""
    for _ in range(20):
        jobs.enqueue("ok")
    verbs.conn.prepare_threshold = 0
    verbs.conn.execute("set plan_cache_mode = force_generic_plan")
    for taken in range(1, 11):
        verbs.must_claim()
        assert database.value("select count(*) from fencepost.jobs where status = 'running'") == taken


def test_two_sessions_never_get_the_same_job(database: Database) -> None:
    """C104: 400 jobs, eight sessions that claim as fast as they can: 400 claims, 400 jobs, each at attempt 1."""
    database.execute("insert into fencepost.jobs (kind) select 'ok' from generate_series(1, 400)")
    together = threading.Barrier(8)

    def drain(_: int) -> list[tuple[int, int]]:
        with database.worker_conn() as conn:
            verbs = Verbs(conn)
            together.wait()
            mine = []
            while (claimed := verbs.claim()) is not None:
                mine.append((claimed.id, claimed.attempt))
            return mine

    with ThreadPoolExecutor(8) as threads:
        claimed = [one for each in threads.map(drain, range(8)) for one in each]
    assert len(claimed) == 400
    assert len(set(claimed)) == 400
    assert {attempt for _, attempt in claimed} == {1}


def test_a_claim_is_counted_fenced_and_leased_before_it_returns(verbs: Verbs, jobs: Jobs) -> None:
    """Counted first: another session sees the attempt at once."""
    job = jobs.enqueue("ok", max_attempts=2)
    claimed = verbs.must_claim(name="somebody:1", lease=timedelta(seconds=60))
    row = jobs[job]
    assert (row.status, row.attempts, row.fence, row.locked_by) == ("running", 1, 1, "somebody:1")
    assert row.started_at is not None
    assert abs(row.locked_until - row.started_at - timedelta(seconds=60)) < timedelta(seconds=1)
    assert (claimed.id, claimed.fence, claimed.attempt, claimed.max_attempts) == (job, 1, 1, 2)


def test_a_claim_says_what_the_job_is(verbs: Verbs, jobs: Jobs) -> None:
    """What the worker needs to run it comes with the claim."""
    job = jobs.enqueue("ok", {"month": "2026-10"}, tenant=7, max_runtime=30, priority=3)
    claimed = verbs.must_claim(lanes=[lane(priority=3)])
    assert (claimed.id, claimed.kind, claimed.payload, claimed.tenant) == (job, "ok", '{"month": "2026-10"}', "7")
    assert (claimed.priority, claimed.max_runtime, claimed.queue) == (3, timedelta(seconds=30), "default")
    assert claimed.created_at == jobs[job].created_at


def test_fences_grow_and_never_repeat(verbs: Verbs, jobs: Jobs) -> None:
    """An attempt may be given back; a fence is not."""
    jobs.enqueue("ok")
    fences = []
    for ended in ("interrupted", "snoozed", "lost", "interrupted"):
        claimed = verbs.must_claim()
        fences.append((claimed.fence, claimed.attempt))
        verbs.finish(claimed, ended)
    assert fences == [(1, 1), (2, 1), (3, 1), (4, 2)]


def test_a_claim_survives_a_crash_of_the_server_where_commits_are_not_awaited(
    start_server: Callable[..., Server], create_database: Callable[[Server], Database]
) -> None:
    """Rule 6: a job that takes the whole server down must stay counted, whatever synchronous_commit says."""
    server = start_server(synchronous_commit="off", wal_writer_delay="10s", wal_writer_flush_after="1GB", autovacuum="off")
    database = create_database(server)
    jobs = Jobs(database)
    database.execute("set synchronous_commit = on")
    job = jobs.enqueue("ok")
    with database.worker_conn() as conn:
        assert conn.execute("show synchronous_commit").fetchone() == ("off",)
        Verbs(conn).must_claim()
        server.kill()
    server.start()
    assert (jobs[job].status, jobs[job].attempts) == ("running", 1)


def test_only_kinds_with_a_handler_are_claimed(verbs: Verbs, jobs: Jobs) -> None:
    """A job of another kind stays for whoever has its handler, even at the head of the queue."""
    other = jobs.enqueue("other")
    mine = jobs.enqueue("ok")
    assert verbs.must_claim().id == mine
    assert verbs.claim() is None
    assert verbs.claim(kinds={}) is None
    assert verbs.must_claim(kinds={"something": 1, "other": 4}).max_attempts == 4
    assert jobs[other].attempts == 1


def test_the_budget_is_the_jobs_own_else_its_handlers(verbs: Verbs, jobs: Jobs) -> None:
    """Which handler's budget it is goes by the kind, and it is kept from the first claim on."""
    own = jobs.enqueue("ok", max_attempts=7)
    theirs = jobs.enqueue("third")
    budgets = {"first": 2, "ok": 3, "third": 5}
    assert verbs.must_claim(kinds=budgets).max_attempts == 7
    claimed = verbs.must_claim(kinds=budgets)
    assert (claimed.id, claimed.max_attempts) == (theirs, 5)
    verbs.finish(claimed, "lost")
    assert verbs.must_claim(kinds={"third": 9}).max_attempts == 5
    assert jobs[own].max_attempts == 7


def test_a_job_is_not_claimed_before_it_is_due(verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """By the database's clock."""
    later = jobs.enqueue("ok", after=3600)
    assert verbs.claim() is None
    database.execute("update fencepost.jobs set run_at = clock_timestamp() where id = %s", [later])
    assert verbs.must_claim().id == later


def test_jobs_are_claimed_in_order_of_run_at_and_then_of_id(verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """First due, first served."""
    first, second, third = (jobs.enqueue("ok") for _ in range(3))
    database.execute("update fencepost.jobs set run_at = now() - interval '1 hour'")
    database.execute("update fencepost.jobs set run_at = now() - interval '2 hours' where id = %s", [third])
    assert [verbs.must_claim().id for _ in range(3)] == [third, first, second]


def test_lanes_are_searched_in_the_order_given(verbs: Verbs, jobs: Jobs) -> None:
    """Queues in order of preference, and in each the lower priority first."""
    late = jobs.enqueue("ok", queue="mail", priority=5)
    low = jobs.enqueue("ok", queue="default", priority=9)
    soon = jobs.enqueue("ok", queue="mail", priority=-5)
    high = jobs.enqueue("ok", queue="default", priority=1)
    order = [lane("default", 1), lane("default", 9), lane("mail", -5), lane("mail", 5)]
    assert [verbs.must_claim(lanes=order).id for _ in range(4)] == [high, low, soon, late]
    assert verbs.claim(lanes=order) is None


def test_a_job_in_a_queue_not_served_is_left_alone(verbs: Verbs, jobs: Jobs) -> None:
    """Only the lanes that were asked for."""
    jobs.enqueue("ok", queue="mail")
    assert verbs.claim(lanes=[lane("default")]) is None
    assert verbs.claim(lanes=[]) is None


def test_lanes_are_the_pairs_of_queue_and_priority_in_which_due_jobs_wait(verbs: Verbs, jobs: Jobs) -> None:
    """Of the queues asked for; `*` is all of them; not what is only due later, or runs already."""
    for queue, priority in (("a", 2), ("a", 2), ("a", 1), ("b", 0), ("c", 7)):
        jobs.enqueue("ok", queue=queue, priority=priority)
    jobs.enqueue("ok", queue="a", priority=9, after=3600)
    verbs.must_claim(lanes=[lane("b", 0)])
    assert set(verbs.lanes("a", "b")) == {("a", 1), ("a", 2)}
    assert set(verbs.lanes("*")) == {("a", 1), ("a", 2), ("c", 7)}
    assert set(verbs.lanes("c", "*", "a")) == {("a", 1), ("a", 2), ("c", 7)}
    assert verbs.lanes("nothing") == []
    assert verbs.lanes("aa") == []


def test_a_look_at_the_lanes_does_not_pass_by_those_of_others(verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """Rule 22: another queue with a priority for each of its jobs costs nothing here."""
    database.execute(
        """insert into fencepost.jobs (kind, queue, priority)
           select 'ok', case n % 2 when 1 then 'alike' else 'zoo' end, n from generate_series(1, 4000) n"""
    )
    jobs.enqueue("ok", queue="mail", priority=3)
    database.execute("vacuum analyze fencepost.jobs")
    assert verbs.lanes("mail", "nothing") == [("mail", 3)]
    assert verbs.waiting("mail", "nothing", idle=4).due == 1
    for verb, arguments in {"lanes": {"due_by": None}, "look": {**ASKS_NOTHING, "kinds": ["ok"], "idle": 4}}.items():
        assert pages_of(database, verb, {**arguments, "queues": ["mail", "nothing"]}) < 30
        assert pages_of(database, verb, {**arguments, "queues": ["zoo"]}) > 1000, "the trap is not set"


def test_a_job_below_the_cursor_is_found_from_the_start(verbs: Verbs, jobs: Jobs) -> None:
    """A retry or a late commit lands behind the key that a worker has reached; looking at the whole finds it."""
    first = jobs.enqueue("ok")
    claimed = verbs.must_claim()
    second = jobs.enqueue("ok")
    beyond = lane(after_run_at=jobs[second].run_at, after_id=second)
    verbs.finish(claimed, "lost")
    assert verbs.claim(lanes=[beyond]) is None
    assert {verbs.must_claim().id, verbs.must_claim().id} == {first, second}


def test_the_cursor_is_a_key_and_not_a_time(verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """Jobs of one transaction share their run_at, and none of them may be passed over."""
    with database.conn(autocommit=False) as conn:
        conn.execute("select fencepost.enqueue('ok') from generate_series(1, 5)")
    seen = []
    at = lane()
    while (claimed := verbs.claim(lanes=[at])) is not None:
        seen.append(claimed.id)
        at = lane(after_run_at=claimed.run_at, after_id=claimed.id)
    assert seen == [1, 2, 3, 4, 5]


def test_a_job_that_is_locked_is_skipped(verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """A claim waits for nobody: neither for another claim nor for who else holds a row."""
    locked = jobs.enqueue("ok")
    free = jobs.enqueue("ok")
    with database.conn(autocommit=False) as conn:
        conn.execute("select from fencepost.jobs where id = %s for update", [locked])
        assert verbs.must_claim().id == free
        assert verbs.claim() is None


def test_a_waiting_job_that_a_foreign_key_refers_to_is_claimed(verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """A lock that only protects the key must not make a job look taken."""
    job = jobs.enqueue("ok")
    with database.conn(autocommit=False) as conn:
        conn.execute("select from fencepost.jobs where id = %s for key share", [job])
        assert verbs.must_claim().id == job


def test_a_claim_behind_the_cursor_costs_the_same_while_an_old_transaction_is_open(
    verbs: Verbs, database: Database, connect: Callable[..., Connection]
) -> None:
    """Promise 11: 20,000 claimed jobs whose index entries can't be removed yet are not walked again."""
    database.execute(
        """insert into fencepost.jobs (kind, run_at)
           select 'ok', now() - interval '1 hour' from generate_series(1, 20100)"""
    )
    database.execute("vacuum analyze fencepost.jobs")
    old = connect(autocommit=False)
    old.execute("set transaction isolation level repeatable read")
    old.execute("select count(*) from fencepost.jobs")
    fresh = pages_of_a_claim(database, lane())
    database.execute(
        """update fencepost.jobs set status = 'running', attempts = 1, max_attempts = 1, fence = 1, locked_by = 'x',
           locked_until = now() + interval '1 hour', started_at = now() where id <= 20000"""
    )
    last = database.execute("select run_at, id from fencepost.jobs where id = 20000")[0]
    from_start = pages_of_a_claim(database, lane())
    behind = pages_of_a_claim(database, lane(after_run_at=last.run_at, after_id=last.id))
    assert from_start > 10 * fresh, "the trap is not set: the dead entries are gone"
    assert behind <= fresh + 10


def test_a_claim_among_many_finished_jobs_is_an_index_scan(verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """C102: finished rows pile up, and no claim looks at them."""
    database.execute(
        """insert into fencepost.jobs (kind, status, attempts, max_attempts, fence, finished_at)
           select 'ok', 'done', 1, 1, 1, now() from generate_series(1, 20000)"""
    )
    jobs.enqueue("ok")
    database.execute("analyze fencepost.jobs")
    assert pages_of_a_claim(database, lane()) < 60


def test_what_a_worker_holds_is_found_by_its_name(verbs: Verbs, jobs: Jobs) -> None:
    """Asked where an answer was lost: exactly its own, and as it was claimed."""
    for _ in range(4):
        jobs.enqueue("ok", {"month": "2026-10"}, max_runtime=5)
    mine = verbs.must_claim(name="w1:1")
    other = verbs.must_claim(name="w11:1")
    verbs.finish(verbs.must_claim(name="w1:2"), "done")
    assert held(verbs.conn, verbs.schema, "w1") == [mine]
    assert held(verbs.conn, verbs.schema, "w11") == [other]
    assert held(verbs.conn, verbs.schema, "w") == []


@pytest.mark.parametrize("run_at", ["0001-01-02 00:00+00", "9999-12-30 23:59:59+00"])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York", "Etc/GMT+12", "Pacific/Kiritimati"])
def test_every_run_at_that_the_table_takes_can_be_read(verbs: Verbs, database: Database, run_at: str, zone: str) -> None:
    """A claim that the client can't read would be a job that runs for no one."""
    verbs.conn.execute(f"set timezone = '{zone}'")
    database.execute("insert into fencepost.jobs (kind, run_at) values ('ok', %s)", [run_at])
    found = verbs.conn.execute("select run_at from fencepost.jobs").fetchone()
    assert isinstance(found[0], datetime)
    if found[0].astimezone(UTC).year == 1:
        assert verbs.must_claim().run_at == found[0]
