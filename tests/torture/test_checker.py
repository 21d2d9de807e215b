"""The torture run's checker: a right history passes, and one that is wrong in a way is found by the claim of that name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from torture.checker import INSTANT, check
from torture.history import Change, Effect, History, Line, Outcome, Row

ONCE, MANY = 1, 2


def line(what: str, at: float, fence: int, pid: int, **facts: object) -> Line:
    return Line(what, at, pid, job=MANY, fence=fence, supervisor=10, tenant="b", **facts)  # type: ignore[arg-type]


def steps(fence: int, numbers: range, committed: int) -> tuple[Effect, ...]:
    return tuple(Effect(MANY, fence, step, "b", "a token", f"t{committed}", committed) for step in numbers)


RIGHT = History(
    # A host is frozen; its job runs elsewhere; it wakes, acts for an instant, and is refused.
    lines=(
        line("start", 1.0, 1, pid=11, attempt=1),
        line("act", 1.5, 1, pid=11),
        Line("froze host", 2.0, pids=(10, 11)),
        line("conflict", 7.0, 2, pid=22, other=11),
        line("start", 7.0, 2, pid=22, attempt=2),
        line("act", 7.5, 2, pid=22),
        Line("wakes host", 7.8, pids=(10, 11)),
        Line("woke host", 8.0, pids=(10, 11)),
        line("act", 8.0 + INSTANT / 2, 1, pid=11),
        line("end", 9.5, 2, pid=22),
    ),
    effects=(
        Effect(ONCE, 1, 1, "a", "a token", "t20", 20),
        *steps(1, range(1, 3), 110),
        *steps(2, range(1, 5), 210),
    ),
    changes=(
        Change(ONCE, 0, "queued", "t0", 1),
        Change(ONCE, 1, "running", "t10", 10),
        Change(ONCE, 1, "done", "t20", 20),
        Change(MANY, 0, "queued", "t1", 1),
        Change(MANY, 1, "running", "t100", 100),
        Change(MANY, 1, "queued", "t150", 150),
        Change(MANY, 2, "running", "t200", 200),
        Change(MANY, 2, "done", "t220", 220),
    ),
    jobs=(Row(ONCE, "once", "a", "done", 2), Row(MANY, "steps", "b", "done", 2)),
    outcomes=(Outcome(ONCE, 1, "done"), Outcome(MANY, 1, "lost"), Outcome(MANY, 2, "done")),
    enqueued=((ONCE, "a"), (MANY, "b")),
)


def with_lines(*lines: Line) -> History:
    return replace(RIGHT, lines=tuple(sorted((*RIGHT.lines, *lines), key=lambda one: one.at)))


def with_effects(*effects: Effect) -> History:
    return replace(RIGHT, effects=(*RIGHT.effects, *effects))


def with_changes(*changes: Change) -> History:
    return replace(RIGHT, changes=(*RIGHT.changes, *changes))


def without_change(change: Change) -> History:
    return replace(RIGHT, changes=tuple(one for one in RIGHT.changes if one != change))


def with_budget(budget: int) -> History:
    return replace(RIGHT, jobs=tuple(replace(row, max_attempts=budget) for row in RIGHT.jobs))


def with_status(job: int, status: str) -> History:
    return replace(RIGHT, jobs=tuple(replace(row, status=status) if row.id == job else row for row in RIGHT.jobs))


WRONG = {
    "a job is gone": (replace(RIGHT, enqueued=(*RIGHT.enqueued, (3, "a"))), "every_job_came_to_rest_once"),
    "a job is still queued": (with_status(MANY, "queued"), "every_job_came_to_rest_once"),
    "a job came to rest twice": (with_changes(Change(MANY, 2, "dead", "t300", 300)), "every_job_came_to_rest_once"),
    "a job never came to rest": (without_change(Change(MANY, 2, "done", "t220", 220)), "every_job_came_to_rest_once"),
    "a run too many": (with_budget(1), "counted_runs_stay_in_budget"),
    "a run too many that no claim tells of": (
        with_lines(line("start", 10.0, 3, pid=33)),
        "counted_runs_stay_in_budget",
    ),
    "a run without outcome": (replace(RIGHT, outcomes=RIGHT.outcomes[:1] + RIGHT.outcomes[2:]), "every_run_is_on_record"),
    "an outcome without run": (replace(RIGHT, outcomes=(*RIGHT.outcomes, Outcome(MANY, 3, "lost"))), "every_run_is_on_record"),
    "an earlier run acts": (with_lines(line("act", 8.1 + INSTANT, 1, pid=11)), "no_two_runs_overlapped"),
    "what a woken run has started acts on": (with_lines(line("stray", 8.1 + INSTANT, 1, pid=13)), "no_two_runs_overlapped"),
    "an earlier run acts that was never frozen": (with_lines(line("act", 7.2, 1, pid=12)), "no_two_runs_overlapped"),
    "an earlier run hangs": (with_lines(line("conflict", 7.1, 2, pid=22, other=12)), "no_two_runs_overlapped"),
    "an earlier run starts later, and tells": (
        with_lines(line("conflict", 7.3, 1, pid=12, other=22)),
        "no_two_runs_overlapped",
    ),
    "an earlier run starts later": (with_lines(line("start", 7.3, 1, pid=12)), "no_two_runs_overlapped"),
    "what an earlier run left acts": (with_lines(line("stray", 7.2, 1, pid=13)), "no_two_runs_overlapped"),
    "a supervisor was stopped alone": (
        replace(RIGHT, lines=tuple(replace(one, pids=(10,)) if one.pids else one for one in RIGHT.lines)),
        "no_two_runs_overlapped",
    ),
    "a write after the lease was lost": (with_effects(*steps(1, range(3, 4), 160)), "no_effect_came_too_late"),
    "a write after the next claim": (
        replace(without_change(Change(MANY, 1, "queued", "t150", 150)), effects=(*RIGHT.effects, *steps(1, range(3, 4), 205))),
        "no_effect_came_too_late",
    ),
    "a write after the end": (with_effects(Effect(ONCE, 1, 2, "a", "a token", "t21", 21)), "no_effect_came_too_late"),
    "an effect twice": (with_effects(Effect(ONCE, 1, 1, "a", "a token", "t15", 15)), "done_is_where_the_effect_is"),
    "an effect of a job that is not done": (
        replace(with_status(ONCE, "dead"), outcomes=(Outcome(ONCE, 1, "failed"), *RIGHT.outcomes[1:])),
        "done_is_where_the_effect_is",
    ),
    "done without effect": (replace(RIGHT, effects=RIGHT.effects[1:]), "done_is_where_the_effect_is"),
    "done without its last step": (replace(RIGHT, effects=RIGHT.effects[:-1]), "done_is_where_the_effect_is"),
    "done by no run": (
        replace(RIGHT, outcomes=(Outcome(ONCE, 1, "failed"), *RIGHT.outcomes[1:])),
        "done_is_where_the_effect_is",
    ),
    "another tenant's row": (
        replace(RIGHT, effects=(replace(RIGHT.effects[0], tenant="b"), *RIGHT.effects[1:])),
        "tenants_write_their_own_rows",
    ),
    "a tenant that outlives its transaction": (
        with_effects(Effect(MANY, 2, 5, "b", "", "t215", 215)),
        "tenants_write_their_own_rows",
    ),
    "a run for another tenant": (
        replace(RIGHT, lines=tuple(replace(one, tenant="a") for one in RIGHT.lines)),
        "tenants_write_their_own_rows",
    ),
    "something left behind": (replace(RIGHT, left=("a session",)), "nothing_was_left_behind"),
}


def test_a_right_history_passes() -> None:
    assert check(RIGHT) == []


def test_what_a_job_has_left_may_act_once_the_supervisor_that_would_have_ended_it_was_killed() -> None:
    history = with_lines(Line("killed supervisor", 7.1, pids=(10,)), line("stray", 7.2, 1, pid=13))
    assert check(history) == []


@pytest.mark.parametrize("moment", [7.9, 8.0 + INSTANT / 2])
def test_what_a_woken_run_starts_in_the_instant_may_act_in_it(moment: float) -> None:
    assert check(with_lines(line("stray", moment, 1, pid=13))) == []


def test_a_run_that_was_frozen_before_its_start_may_start_in_the_instant_and_find_the_later_one_there() -> None:
    moment = 8.0 + INSTANT / 2
    history = with_lines(line("conflict", moment, 1, pid=11, other=22), line("start", moment, 1, pid=11))
    assert check(history) == []


@pytest.mark.parametrize(("history", "claim"), WRONG.values(), ids=WRONG)
def test_a_wrong_history_is_found(history: History, claim: str) -> None:
    assert claim in {violation.claim for violation in check(history)}
