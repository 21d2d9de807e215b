"""Where a worker looks next."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fencepost.jobs.claim import Claim
from fencepost.worker.lanes import SHARE_OF_TIME, WHILE_BUSY, Lanes

NOW = datetime(2026, 10, 1, tzinfo=UTC)
START = datetime.min.replace(tzinfo=UTC)


def claimed(job: int, queue: str = "default", priority: int = 0, run_at: datetime = NOW) -> Claim:
    return Claim(job, 1, "w:1", queue, "ok", "{}", "1", priority, run_at, 1, 3, None, NOW)


def order(lanes: Lanes) -> list[tuple[str, int]]:
    return [(lane.queue, lane.priority) for lane in lanes.in_order()]


def test_queues_come_in_order_of_preference_and_then_by_priority() -> None:
    """Lower priority first."""
    lanes = Lanes(("mail", "default"))
    lanes.look_at_all([("default", -5), ("mail", 3), ("mail", -1), ("default", 0)])
    assert order(lanes) == [("mail", -1), ("mail", 3), ("default", -5), ("default", 0)]


def test_all_others_come_where_the_star_stands() -> None:
    """`urgent,*` prefers one and serves all."""
    lanes = Lanes(("urgent", "*", "later"))
    lanes.look_at_all([("later", 0), ("b", 1), ("a", 2), ("urgent", 9)])
    assert order(lanes) == [("urgent", 9), ("b", 1), ("a", 2), ("later", 0)]


def test_queues_that_share_a_place_take_turns() -> None:
    """Among those of `*` with one priority, whichever's last job was due the longest ago."""
    lanes = Lanes(("*",))
    lanes.look_at_all([("a", 0), ("b", 0)])
    lanes.took(claimed(1, "a", run_at=NOW))
    assert order(lanes) == [("b", 0), ("a", 0)]
    lanes.took(claimed(2, "b", run_at=NOW + timedelta(seconds=1)))
    assert order(lanes) == [("a", 0), ("b", 0)]


def test_a_lane_is_searched_behind_what_was_taken_there() -> None:
    """And the others as before."""
    lanes = Lanes(("default",))
    lanes.look_at_all([("default", 0), ("default", 1)])
    assert {(lane.after_run_at, lane.after_id) for lane in lanes.in_order()} == {(START, 0)}
    lanes.took(claimed(7))
    first, second = lanes.in_order()
    assert (first.after_run_at, first.after_id) == (NOW, 7)
    assert (second.after_run_at, second.after_id) == (START, 0)


def test_a_look_at_the_whole_forgets_the_keys_of_what_it_finds() -> None:
    """What landed below them is found so; a lane that is empty now is kept for what comes there next."""
    lanes = Lanes(("default",))
    lanes.look_at_all([("default", 0), ("default", 1)])
    lanes.took(claimed(7))
    lanes.look_at_all([("default", 0)])
    assert [(lane.priority, lane.after_run_at) for lane in lanes.in_order()] == [(0, START), (1, START)]


def test_what_was_taken_in_an_unknown_lane_changes_nothing() -> None:
    """A claim that was adopted after a lost answer, say."""
    lanes = Lanes(("default",))
    lanes.look_at_all([("default", 0)])
    before = lanes.in_order()
    lanes.took(replace(claimed(7), priority=3))
    assert lanes.in_order() == before


@pytest.mark.parametrize("busy", [True, False])
def test_the_first_look_is_at_the_whole(busy: bool) -> None:  # noqa: FBT001
    """There is nothing to go by yet."""
    assert Lanes(("default",)).may_look_at_all(0.0, busy=busy)


def test_a_look_at_the_whole_never_takes_more_than_its_share_of_the_time() -> None:
    """By time, never by count: a look that took long is paid for with a longer pause."""
    lanes = Lanes(("default",))
    now, looking, worked = 100.0, 0.0, 0.0
    cost = 0.4
    while worked < 1000:
        if lanes.may_look_at_all(now, busy=False):
            now += cost
            looking += cost
            lanes.looked_at_all(now, cost)
        now += 0.01
        worked += 0.01
    assert looking <= worked / SHARE_OF_TIME + cost


def test_a_busy_worker_looks_at_the_whole_now_and_then() -> None:
    """A retry below the key starts soon, however long the queue is."""
    lanes = Lanes(("default",))
    lanes.looked_at_all(100.0, 0.001)
    assert not lanes.may_look_at_all(100.0 + WHILE_BUSY * 0.9, busy=True)
    assert lanes.may_look_at_all(100.0 + WHILE_BUSY, busy=True)
    assert lanes.may_look_at_all(100.0 + 0.001 * SHARE_OF_TIME, busy=False)
