"""What a history must show. One claim, one function: it yields what contradicts it, and nothing where the claim holds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from torture.handlers import ONE_TRANSACTION, STEPS
from torture.history import Change, History, Line

REST = ("done", "dead", "cancelled")
GIVEN_BACK = 20
"""Interruptions that are not counted."""

INSTANT = 1.0
"""Seconds for which a run may act after a host that was frozen as a whole has woken: until its supervisor has looked."""


@dataclass(frozen=True)
class Violation:
    """What contradicts a claim, and of which job; 0 is none in particular."""

    claim: str
    job: int
    text: str


def check(history: History) -> list[Violation]:
    """Return all violations of all claims."""
    return [Violation(claim.__name__, job, text) for claim in CLAIMS for job, text in claim(history)]


def every_job_came_to_rest_once(history: History) -> Iterator[tuple[int, str]]:
    """What was enqueued is there, is at rest, and came to rest a single time."""
    there = {row.id: row for row in history.jobs}
    rests = Counter(change.job for change in history.changes if change.status in REST)
    for job, _ in history.enqueued:
        if job not in there:
            yield job, "was enqueued, and is gone"
    for job, row in there.items():
        if row.status not in REST:
            yield job, f"is {row.status}, and not at rest"
        elif rests[job] != 1:
            yield job, f"came to rest {rests[job]} times"


def counted_runs_stay_in_budget(history: History) -> Iterator[tuple[int, str]]:
    """Of the runs that began, no more are counted than allowed: all but those given back are."""
    outcomes = {(one.job, one.fence): one.outcome for one in history.outcomes}
    budgets = {row.id: row.max_attempts or 0 for row in history.jobs}
    for job, fences in _claims(history).items():
        how = Counter(outcomes.get((job, fence)) for fence in fences)
        counted = len(fences) - how["snoozed"] - min(how["interrupted"], GIVEN_BACK)
        if counted > budgets.get(job, 0):
            yield job, f"has {counted} counted runs, and may have {budgets.get(job, 0)}"


def every_run_is_on_record(history: History) -> Iterator[tuple[int, str]]:
    """Each claim, and each run that began, has its one outcome; and no outcome is of a run that was never claimed."""
    recorded = {(one.job, one.fence) for one in history.outcomes}
    claimed = {(job, fence) for job, fences in _claims(history).items() for fence in fences}
    for job, fence in sorted(claimed - recorded):
        yield job, f"its run {fence} has no outcome"
    for job, fence in sorted(recorded - claimed):
        yield job, f"its run {fence} has an outcome, and was never claimed"


def no_two_runs_overlapped(history: History) -> Iterator[tuple[int, str]]:
    """Once a run of a job has begun, no earlier one acts or has a process that could.

    Two exceptions, both known from what was done to them: a host that was frozen as a whole, for an instant after it has woken,
    with what its runs start in that instant; and what a job had started outside of its worker, when the supervisor that would
    have ended it was killed.
    """
    frozen = _spans(history.lines, "froze host")
    waking = _spans(history.lines, "wakes host")
    killed = {pid: line.at for line in history.lines if line.what == "killed supervisor" for pid in line.pids}
    for job, lines in _by_job(history.lines).items():
        begun = 0
        supervisors = {line.fence: line.supervisor for line in lines if line.what == "start"}
        workers = {line.fence: line.pid for line in lines if line.what == "start"}
        for line in lines:
            if line.what == "start":
                begun = max(begun, line.fence)
            if line.what in ("act", "stray", "start") and line.fence < begun and not _is_in(frozen, line.pid, line.at):
                orphan = line.what == "stray" and (
                    killed.get(supervisors.get(line.fence, 0), line.at) < line.at
                    or _is_in(waking, workers.get(line.fence, 0), line.at)
                )
                if not orphan:
                    yield job, f"run {line.fence} acted at {line.at:.3f} (pid {line.pid}), after run {begun} had begun"
            # The earlier of the two is at fault, whichever of them has told.
            earlier = line.pid if line.fence < begun else line.other
            if line.what == "conflict" and not _is_in(frozen, earlier, line.at):
                yield job, f"run {line.fence} began at {line.at:.3f} while pid {line.other} still ran the job"


def no_effect_came_too_late(history: History) -> Iterator[tuple[int, str]]:
    """What was committed for a run was committed while it held its fence, or together with its end."""
    changes = defaultdict(list)
    for change in history.changes:
        changes[change.job].append(change)
    for effect in history.effects:
        # Without the token the row was not in a transaction of the run: the job has ended that one itself.
        if not effect.token:
            continue
        lost = next((change for change in changes[effect.job] if _takes_away(change, effect.fence)), None)
        if lost is not None and lost.transaction != effect.transaction and effect.committed > lost.committed:
            late = (effect.committed - lost.committed) / 1000
            yield effect.job, f"run {effect.fence} committed step {effect.step} {late:.0f} ms after its fence was lost"


def done_is_where_the_effect_is(history: History) -> Iterator[tuple[int, str]]:
    """With one transaction there is an effect if and only if the job is done; with several, done has all steps."""
    effects = defaultdict(list)
    for effect in history.effects:
        effects[effect.job].append((effect.fence, effect.step))
    done = {one.job: one.fence for one in history.outcomes if one.outcome == "done"}
    for row in history.jobs:
        found = effects[row.id]
        if len(set(found)) != len(found):
            yield row.id, f"a run has committed a step twice: {found}"
        if (row.status == "done") != (row.id in done):
            yield row.id, f"is {row.status}, and its runs say otherwise"
        if row.kind == ONE_TRANSACTION:
            right = [(done[row.id], 1)] if row.id in done else []
            if found != right:
                yield row.id, f"is {row.status}, and its one transaction has left {found}"
        elif row.kind in STEPS and row.id in done:
            steps = sorted(step for fence, step in found if fence == done[row.id])
            if steps != list(range(1, STEPS[row.kind] + 1)):
                yield row.id, f"is done, and the run that was has committed the steps {steps} of {STEPS[row.kind]}"


def tenants_write_their_own_rows(history: History) -> Iterator[tuple[int, str]]:
    """The tenant that the server has found set is the job's, in its run's transactions; and outside of them there is none."""
    tenants = {**{row.id: row.tenant for row in history.jobs}, **dict(history.enqueued)}
    for effect in history.effects:
        right = tenants.get(effect.job) if effect.token else ""
        if effect.tenant != right:
            where = "in" if effect.token else "outside of"
            yield effect.job, f"{where} its transaction, tenant {effect.tenant!r} was set, and not {right!r}"
    for line in history.lines:
        if line.what == "start" and line.tenant != tenants.get(line.job):
            yield line.job, f"ran for tenant {line.tenant!r}, and was enqueued for {tenants.get(line.job)!r}"


def nothing_was_left_behind(history: History) -> Iterator[tuple[int, str]]:
    """No process, session, prepared transaction, advisory lock, file, row of a supervisor, or notification."""
    for what in history.left:
        yield 0, what


CLAIMS: tuple[Callable[[History], Iterable[tuple[int, str]]], ...] = (
    every_job_came_to_rest_once,
    counted_runs_stay_in_budget,
    every_run_is_on_record,
    no_two_runs_overlapped,
    no_effect_came_too_late,
    done_is_where_the_effect_is,
    tenants_write_their_own_rows,
    nothing_was_left_behind,
)


def _takes_away(change: Change, fence: int) -> bool:
    return change.fence > fence or (change.fence == fence and change.status != "running")


def _claims(history: History) -> dict[int, set[int]]:
    claims: dict[int, set[int]] = defaultdict(set)
    for change in history.changes:
        if change.status == "running":
            claims[change.job].add(change.fence)
    for line in history.lines:
        if line.what == "start":
            claims[line.job].add(line.fence)
    return claims


def _by_job(lines: Iterable[Line]) -> dict[int, list[Line]]:
    jobs: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        if line.job:
            jobs[line.job].append(line)
    return jobs


def _spans(lines: Iterable[Line], begins: str) -> dict[int, list[tuple[float, float]]]:
    """Return the times of processes from when their whole host `begins` to an instant after it was woken."""
    spans: dict[int, list[tuple[float, float]]] = defaultdict(list)
    since: dict[int, float] = {}
    for line in lines:
        for pid in line.pids:
            if line.what == begins:
                since[pid] = line.at
            elif line.what == "woke host" and pid in since:
                spans[pid].append((since.pop(pid), line.at + INSTANT))
    for pid, at in since.items():
        spans[pid].append((at, float("inf")))
    return spans


def _is_in(spans: dict[int, list[tuple[float, float]]], pid: int, at: float) -> bool:
    return any(begin <= at <= end for begin, end in spans.get(pid, ()))
