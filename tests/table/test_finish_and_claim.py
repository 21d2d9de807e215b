"""A finish and the next claim in one statement: one commit a job, and nothing of either given up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from fencepost.jobs.claim import Claim
from fencepost.jobs.quick import QuickConnection
from support.databases import Database
from support.jobs import Jobs
from support.verbs import Verbs
from table.test_claim import PLANS

BY = "select xmin::text from fencepost.jobs where id = %s"


@pytest.fixture
def quick(database: Database) -> Iterator[Verbs]:
    """The verbs on a connection as a worker has it for claims."""
    with QuickConnection.connect(database.worker_url, autocommit=True) as conn:
        conn.plan_once("fencepost")
        yield Verbs(conn)


def followed(answer: tuple[bool, Claim | None]) -> Claim:
    held_to_the_end, following = answer
    assert held_to_the_end
    assert following is not None
    return following


def test_both_are_in_one_commit(quick: Verbs, jobs: Jobs, database: Database) -> None:
    """And what is claimed is counted, leased and fenced as by a claim alone."""
    first, second = jobs.enqueue("ok"), jobs.enqueue("ok")
    following = followed(quick.finish_and_claim(quick.must_claim(), result="7"))
    assert (following.id, following.attempt, following.fence, following.max_attempts) == (second, 1, 1, 3)
    assert jobs.outcomes(first) == ["done"]
    assert database.value("select result from fencepost.jobs where id = %s", [first]) == 7
    assert database.value(BY, [first]) == database.value(BY, [second])


def test_where_nothing_waits_the_run_is_finished_all_the_same(quick: Verbs, jobs: Jobs) -> None:
    """The answer has a row, and no job in it."""
    only = jobs.enqueue("ok")
    assert quick.finish_and_claim(quick.must_claim()) == (True, None)
    assert jobs.outcomes(only) == ["done"]


def test_a_run_that_has_lost_its_job_finishes_nothing_and_still_claims(quick: Verbs, jobs: Jobs, database: Database) -> None:
    """Swept meanwhile, and queued again: the claim may take that very job, under the next fence."""
    only = jobs.enqueue("ok")
    lost = quick.must_claim()
    database.value("select fencepost.finish(%s, %s, %s, 'lost')", [only, lost.fence, lost.name])
    held_to_the_end, following = quick.finish_and_claim(lost)
    assert not held_to_the_end
    assert following is not None
    assert (following.id, following.fence) == (only, lost.fence + 1)
    assert jobs.outcomes(only) == ["lost"]


def test_what_is_to_be_tried_again_waits_its_time(quick: Verbs, jobs: Jobs) -> None:
    """It is put back behind what waits, and is not claimed by the statement that puts it back."""
    first, second = jobs.enqueue("ok"), jobs.enqueue("ok")
    following = followed(quick.finish_and_claim(quick.must_claim(), "failed"))
    assert following.id == second
    assert quick.must_claim().id == first


@pytest.mark.parametrize("off", PLANS, ids=lambda off: "without " + ("-".join(off) or "nothing"))
def test_each_takes_one_row_whatever_plan_the_server_chooses(
    quick: Verbs, database: Database, jobs: Jobs, off: tuple[str, ...]
) -> None:
    """C98: also where the plan is kept for all values."""
    for _ in range(12):
        jobs.enqueue("ok")
    for name in off:
        quick.conn.execute(f"set enable_{name} = off")
    claimed = quick.must_claim()
    for done in range(1, 9):
        claimed = followed(quick.finish_and_claim(claimed))
        assert database.value("select count(*) from fencepost.jobs where status = 'done'") == done
        assert database.value("select count(*) from fencepost.jobs where status = 'running'") == 1
    assert database.value("select max(attempts) from fencepost.jobs") == 1


REFUSED: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "a result that is no JSON": ({"result": "{"}, psycopg.DataError),
    "an outcome that there is not": ({"ended": "done", "max_rss": 2**63}, psycopg.DataError),
}


@pytest.mark.parametrize(("outcome", "error"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_claims_nothing(quick: Verbs, jobs: Jobs, outcome: dict[str, Any], error: type[Exception]) -> None:
    """The server says no to both, in its own words and with its own code."""
    first, second = jobs.enqueue("ok"), jobs.enqueue("ok")
    claimed = quick.must_claim()
    with pytest.raises(error) as raised:
        quick.finish_and_claim(claimed, **outcome)
    assert isinstance(raised.value, psycopg.Error)
    assert raised.value.sqlstate is not None
    assert jobs[first].status == "running"
    assert jobs[second].status == "queued"


def test_an_answer_that_does_not_come_is_no_answer(quick: Verbs, jobs: Jobs, database: Database) -> None:
    """The session is ended in between: what the worker takes for lost is not taken for a refusal."""
    jobs.enqueue("ok")
    claimed = quick.must_claim()
    database.execute("select pg_terminate_backend(%s)", [quick.conn.info.backend_pid])
    with pytest.raises(psycopg.OperationalError):
        quick.finish_and_claim(claimed)
    assert quick.conn.closed
