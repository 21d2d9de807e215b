"""What has been at rest for long enough is deleted: no more than that, in steps that are bounded and wait for nobody."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest
from psycopg import Connection

from fencepost.jobs.prune import Pruned
from fencepost.supervisor.prune import AT_ONCE, BETWEEN_FRUITLESS_STEPS, Pass, pause_after
from support.databases import Database
from support.jobs import Jobs
from support.verbs import Verbs
from support.waiting import wait_until

WEEK = timedelta(days=7)

OLD = """
    insert into fencepost.jobs
        (kind, status, attempts, max_attempts, fence, started_at, finished_at, created_at, run_at, locked_by, locked_until)
    select 'ok', %(status)s, case when %(status)s = 'queued' then 0 else 1 end, 3, 1, made, ended,
        made, made, case when %(status)s = 'running' then 'w:' || n end,
        case when %(status)s = 'running' then now() + interval '1 hour' end
    from generate_series(1, %(count)s) n
    cross join (
        select now() - %(made)s::interval as made,
            case when %(status)s in ('done', 'dead', 'cancelled') then now() - %(ended)s::interval end as ended
    ) times
    returning id
"""
OLDER = """
    update fencepost.jobs set created_at = created_at - interval '8 days', finished_at = finished_at - interval '8 days'
    where id = %s
"""
IDS = "select coalesce(array_agg(id order by id), '{}') from fencepost.jobs"


Add = Callable[..., list[int]]


def pages_of_a_look(conn: Connection, *, span: int = 20_000, most: int = 500) -> int:
    """Return how many pages a step from the first job on touches, once it has been planned for good: the sixth time."""
    explain = "explain (analyze, buffers, timing off, format json) select fencepost.prune(interval '7 days', 0, %s, %s)"
    for _ in range(7):
        row = conn.execute(explain, [span, most]).fetchone()
    plan = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.fixture
def add(database: Database) -> Callable[..., list[int]]:
    """Add jobs of a status that were made, and came to rest, days ago."""

    def add_some(status: str = "done", count: int = 1, *, made: str = "30 days", ended: str = "8 days") -> list[int]:
        rows = database.execute(OLD, {"status": status, "count": count, "made": made, "ended": ended})
        return [row.id for row in rows]

    return add_some


def test_a_job_is_kept_for_exactly_as_long_as_it_is_to_be(verbs: Verbs, add: Add, database: Database) -> None:
    """By when it came to rest, and not by when it was made."""
    add(ended="7 days 1 second")
    kept = add(ended="6 days 23:59:00")
    add("cancelled", ended="7 days 1 second")
    kept += add("cancelled", ended="6 days 23:59:00")
    pruned = verbs.prune(WEEK)
    assert (pruned.ripe, pruned.deleted, pruned.ended) == (2, 2, True)
    assert database.value(IDS) == kept
    assert verbs.prune(timedelta(days=6)).deleted == 2


@pytest.mark.parametrize("status", ["queued", "running", "dead"])
def test_what_is_not_at_rest_for_good_is_never_deleted(verbs: Verbs, add: Add, database: Database, status: str) -> None:
    """However old it is. A dead job is there for someone to look at, and to retry."""
    kept = add(status, 3, made="9 years", ended="9 years")
    add("done")
    assert verbs.prune(timedelta(seconds=1)).deleted == 1
    assert database.value(IDS) == kept


def test_a_dead_job_that_was_retried_long_after_is_kept_from_its_new_end_on(
    verbs: Verbs, add: Add, jobs: Jobs, database: Database
) -> None:
    """By hand: it is queued again, is done, and from then on it counts."""
    (job,) = add("dead")
    database.execute("select fencepost.retry(%s)", [job])
    assert verbs.prune(WEEK).deleted == 0
    verbs.finish(verbs.must_claim())
    assert verbs.prune(WEEK).deleted == 0
    assert jobs[job].status == "done"


def test_what_a_job_has_left_goes_with_it(verbs: Verbs, jobs: Jobs, database: Database) -> None:
    """Its runs, and payloads that are stored outside of its row."""
    large = {"text": "".join(chr(0x4E00 + n * 7919 % 20_000) for n in range(100_000))}
    job, other = jobs.enqueue("ok", large), jobs.enqueue("ok")
    for _ in (job, other):
        verbs.finish(verbs.must_claim())
    database.execute(OLDER, [job])
    outside = database.value("select reltoastrelid::regclass::text from pg_class where oid = 'fencepost.jobs'::regclass")
    assert database.value(f"select count(*) from {outside}") > 0
    assert verbs.prune(WEEK).deleted == 1
    assert database.value("select array_agg(job_id) from fencepost.job_runs") == [other]
    assert database.value(f"select count(*) from {outside}") == 0


def test_a_step_is_bounded_by_ids_and_by_jobs(verbs: Verbs, add: Add, database: Database) -> None:
    """And the next one goes on behind it, until the newest."""
    ids = add(count=100)
    first = verbs.prune(span=30, most=1000)
    assert (first.mark, first.deleted, first.ended) == (30, 30, False)
    second = verbs.prune(mark=first.mark, span=1000, most=40)
    assert (second.mark, second.deleted, second.ended) == (70, 40, False)
    third = verbs.prune(mark=second.mark)
    assert (third.mark, third.deleted, third.ended) == (100, 30, True)
    assert ids[-1] == 100
    assert database.value(IDS) == []


def test_jobs_that_stay_are_gone_past(verbs: Verbs, add: Add, database: Database) -> None:
    """A scheduled or a dead one at the head keeps no other from being deleted."""
    kept = add("queued", 20) + add("dead", 20)
    add(count=20)
    step = verbs.prune(most=30)
    assert (step.mark, step.ripe) == (30, 0)
    step = verbs.prune(mark=step.mark, most=30)
    assert (step.deleted, step.ended) == (20, True)
    assert database.value(IDS) == kept


def test_a_step_ends_before_the_first_job_that_is_too_young_to_be_old_enough(verbs: Verbs, add: Add) -> None:
    """It is looked at again when it is older."""
    add(count=3)
    young = add(count=3, made="6 days", ended="6 days")
    step = verbs.prune()
    assert (step.mark, step.deleted, step.ended) == (young[0] - 1, 3, True)
    later = verbs.prune(timedelta(days=5), mark=step.mark)
    assert (later.mark, later.deleted, later.ended) == (young[-1], 3, True)


def test_a_job_that_was_made_in_the_future_keeps_no_other(verbs: Verbs, add: Add, database: Database) -> None:
    """By a clock that was wrong for a while."""
    kept = add("queued", made="-3 years")
    add()
    assert verbs.prune().deleted == 1
    assert database.value(IDS) == kept


def test_an_empty_table_and_ids_that_have_begun_anew_are_the_end(verbs: Verbs, add: Add) -> None:
    """What is made from then on is found."""
    step = verbs.prune(mark=10**12)
    assert (step.ripe, step.ended) == (0, True)
    (job,) = add()
    assert verbs.prune(mark=step.mark - 1).deleted == 1
    step = verbs.prune(mark=10**12)
    assert (step.mark, step.ended) == (job, True)


def test_a_look_at_many_young_jobs_costs_a_step_down_the_index(fresh_database: Database) -> None:
    """Twenty thousand finished jobs of which none is old enough are not read."""
    fresh_database.execute(OLD, {"status": "done", "count": 20_000, "made": "1 hour", "ended": "1 hour"})
    fresh_database.execute("vacuum analyze fencepost.jobs")
    with fresh_database.worker_conn() as conn:
        assert pages_of_a_look(conn, most=10_000) < 40


def test_a_look_along_deleted_jobs_is_bounded_by_their_ids(verbs: Verbs, add: Add, connect: Callable[..., Connection]) -> None:
    """While an old transaction is open elsewhere, the index still holds them."""
    old = connect(autocommit=False)
    add(count=20_000)
    old.execute("set transaction isolation level repeatable read")
    old.execute("select count(*) from fencepost.jobs")
    step = verbs.prune(span=20_000, most=20_000)
    assert (step.deleted, step.ended) == (20_000, True)
    assert pages_of_a_look(verbs.conn, span=500) < 100


def test_a_locked_job_is_passed_over_and_found_later(verbs: Verbs, add: Add, database: Database) -> None:
    """Nothing waits, and whoever has the row is not disturbed."""
    ids = add("cancelled", 3)
    verbs.conn.execute("set lock_timeout = '1ms'")
    with database.conn(autocommit=False) as conn:
        conn.execute("select from fencepost.jobs where id = %s for update", [ids[1]])
        step = verbs.prune()
        assert (step.ripe, step.deleted, step.ended) == (3, 2, True)
    assert verbs.prune().deleted == 1


def test_two_that_prune_wait_for_each_other_nowhere(verbs: Verbs, other_verbs: Verbs, add: Add, database: Database) -> None:
    """One takes what the other has left."""
    add(count=50)
    for one in (verbs, other_verbs):
        one.conn.execute("set lock_timeout = '1ms'")
    with verbs.conn.transaction():
        assert verbs.prune(span=20).deleted == 20
        theirs = other_verbs.prune()
        assert (theirs.ripe, theirs.deleted) == (50, 30)
    assert other_verbs.prune().ripe == 0
    assert database.value(IDS) == []


def test_no_claim_waits_while_fifty_thousand_jobs_are_deleted(
    verbs: Verbs, other_verbs: Verbs, add: Add, database: Database
) -> None:
    """Nor a finish, a cancel, a retry or an enqueue: also not for a step that has not come to its end."""
    add(count=50_000)
    database.execute("select fencepost.enqueue('ok') from generate_series(1, 300)")
    (dead,) = add("dead")
    other_verbs.conn.execute("set lock_timeout = '20ms'")
    deleted: list[int] = []

    def delete() -> None:
        mark = 0
        with verbs.conn.transaction():
            while mark < 50_000:
                step = verbs.prune(mark=mark, span=500, most=500)
                mark = step.mark
                deleted.append(step.deleted)

    claimed_beside = 0
    with database.conn(options="-c lock_timeout=20ms") as by_hand, ThreadPoolExecutor(1) as threads:
        deleting = threads.submit(delete)
        wait_until(lambda: deleted, what="the first step")
        assert by_hand.execute("select (fencepost.retry(%s)).status", [dead]).fetchone() == ("queued",)
        while not deleting.done():
            other_verbs.finish(other_verbs.must_claim())
            (job,) = by_hand.execute("select fencepost.enqueue('ok')").fetchone()
            assert by_hand.execute("select fencepost.cancel(%s)", [job]).fetchone() == ("cancelled",)
            claimed_beside += 1
        deleting.result()
    assert sum(deleted) == 50_000
    assert claimed_beside > 20


# ---- along the jobs


def step(**said: float) -> Pruned:
    return Pruned(**{"mark": 1000, "ripe": 0, "deleted": 0, "ended": False, "took": 0.001, **said})


def test_gaps_are_gone_over_quickly_and_what_is_slow_in_smaller_pieces() -> None:
    """A hundred million ids that are gone in a few steps; and ten jobs at a time where each has a megabyte."""
    along = Pass(0.0)
    marks = 0
    while along.span < 10**8:
        along = along.after(step())
        marks += 1
    assert marks <= 6
    assert along.after(step(took=0.05)).span == along.span
    assert along.after(step(ripe=1, deleted=1)).span == AT_ONCE
    assert along.after(step(ended=True)).span == AT_ONCE
    assert Pass(0.0).after(step(ripe=500, deleted=500, took=0.5)).span == AT_ONCE // 10
    assert Pass(0.0, span=3).after(step(ripe=3, deleted=3)).span == 30


def test_a_job_that_cannot_be_deleted_is_passed_over_in_the_end() -> None:
    """Another table of the user's refers to it, say. Those beside it go."""
    along = Pass(0.0, mark=7, span=10**6)
    spans = []
    while along.mark == 7:
        spans.append(along.span)
        along = along.refused()
    assert (spans, along.mark) == ([10**6, AT_ONCE // 10, AT_ONCE // 100, 1], 8)


def test_it_goes_on_at_once_only_while_there_is_more_and_nobody_else_is_at_it() -> None:
    """And not for more than a fifth of the time."""
    assert pause_after(step(ripe=500, deleted=500, took=0.02), 60.0) == pytest.approx(0.08)
    assert pause_after(step(), 60.0) == BETWEEN_FRUITLESS_STEPS
    assert pause_after(step(ripe=500, deleted=400), 60.0) == 60.0
    assert pause_after(step(ripe=500, deleted=500, ended=True), 60.0) == 60.0


def test_a_table_of_the_users_that_refers_to_a_job_keeps_that_one_only(
    fresh_database: Database,
) -> None:
    """The server refuses; by smaller steps all others go."""
    fresh_database.execute(OLD, {"status": "done", "count": 40, "made": "9 days", "ended": "9 days"})
    fresh_database.execute("create table kept (job bigint references fencepost.jobs (id)); insert into kept values (17)")
    along, refused = Pass(0.0), 0
    with fresh_database.worker_conn() as conn:
        verbs = Verbs(conn)
        for _ in range(60):
            try:
                done = verbs.prune(mark=along.mark, span=along.span, most=AT_ONCE)
            except psycopg.errors.ForeignKeyViolation:
                along = along.refused()
                refused += 1
            else:
                along = along.after(Pruned(*done))
                if done.ended:
                    break
    assert fresh_database.value(IDS) == [17]
    assert refused > 1
