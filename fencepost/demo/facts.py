"""What was promised, what was seen, and whether the two are the same.

Pure: what has been read of the tables and of the processes goes in, sentences for people come out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

TENANTS = 100
INVOICES = 20_000
"""Of tenant 1; tenant n has the n-th part, rounded down."""

NAMES = {
    "bad.raises": "raises",
    "bad.exits": "kills its process",
    "bad.hangs": "hangs in C",
    "bad.writes_late": "writes too late",
}
"""What the bad jobs are called, in the order in which they are shown."""

WRITES_LATE = "bad.writes_late"
ATTEMPTS = 3


def right_count(tenant: int) -> int:
    """Return how many invoices a tenant has: computed, and not asked of any table."""
    return INVOICES // tenant


@dataclass(frozen=True, slots=True)
class Count:
    """What became of a tenant's job: the number it brought, and how often it was claimed and run."""

    tenant: int
    status: str
    invoices: int | None
    claims: int
    runs: int

    @property
    def is_right(self) -> bool:
        """Whether the tenant has counted its own invoices, all of them and no others."""
        return self.status == "done" and self.invoices == right_count(self.tenant)

    @property
    def undisturbed(self) -> bool:
        """Whether the job's first attempt was its only one."""
        return self.status == "done" and self.claims == self.runs == 1


@dataclass(frozen=True, slots=True)
class BadJob:
    """Where a bad job stands, as the tables say. A run is its row in `job_runs`."""

    id: int
    kind: str
    status: str
    attempts: int
    max_attempts: int | None
    took: float | None
    runs: Sequence[dict[str, Any]]

    @property
    def outcomes(self) -> list[str]:
        """How its runs have ended, the first one first."""
        return [run["outcome"] for run in self.runs]


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is judged. `deaths` are those of the supervisor's workers, in its own words."""

    counts: Sequence[Count]
    bad: dict[str, BadJob]
    reports: Sequence[int]
    late_write_refused: bool
    deaths: Sequence[str]
    pid: int
    age: float
    same_process: bool
    exit_codes: Sequence[int]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One promise, and what was seen of it."""

    what: str
    promised: str
    seen: str
    kept: bool
    took: float | None = None


def verdicts(facts: Facts) -> list[Verdict]:
    """Judge everything that the demo promises."""
    return [
        _counted(facts),
        _undisturbed(facts),
        _ended(facts, "bad.raises", ["failed"] * ATTEMPTS, "dead"),
        _ended(facts, "bad.exits", ["crashed"] * ATTEMPTS, "dead"),
        _ended(facts, "bad.hangs", ["overran"] * ATTEMPTS, "dead"),
        _ended(facts, WRITES_LATE, ["lost", "done"], "done"),
        _void(facts),
        _died(facts),
        _stayed(facts),
    ]


def _counted(facts: Facts) -> Verdict:
    right = [count for count in facts.counts if count.is_right]
    wrong = [
        f"tenant {count.tenant} {_number(count.invoices)} instead of {right_count(count.tenant):,}"
        for count in facts.counts
        if not count.is_right
    ]
    total = sum(right_count(count.tenant) for count in right)
    seen = f"{len(right)} right: {', '.join(wrong)}" if wrong else f"all {len(right)} right, {total:,} invoices"
    kept = not wrong and [count.tenant for count in facts.counts] == list(range(1, TENANTS + 1))
    return Verdict("100 tenants", "each counts its own", seen, kept)


def _undisturbed(facts: Facts) -> Verdict:
    disturbed = [str(count.tenant) for count in facts.counts if not count.undisturbed]
    seen = f"not those of tenants {', '.join(disturbed)}" if disturbed else f"all {len(facts.counts)} at attempt 1"
    return Verdict("their jobs", "all at attempt 1", seen, bool(facts.counts) and not disturbed)


def _ended(facts: Facts, kind: str, outcomes: list[str], status: str) -> Verdict:
    promised = how_ended(outcomes, status)
    job = facts.bad.get(kind)
    if job is None:
        return Verdict(NAMES[kind], promised, "there is no such job", kept=False)
    seen = how_ended(job.outcomes, job.status)
    why = reason(job)
    kept = (job.outcomes, job.status) == (outcomes, status)
    return Verdict(NAMES[kind], promised, f"{seen}: {why}" if why else seen, kept, job.took)


def _void(facts: Facts) -> Verdict:
    attempts = " and ".join(map(str, facts.reports))
    rows = f"{_times(len(facts.reports), 'row')}, of attempt {attempts}" if attempts else "no row"
    refused = "attempt 1 was refused when it woke up" if facts.late_write_refused else "no refusal of attempt 1"
    kept = list(facts.reports) == [2] and facts.late_write_refused
    return Verdict("its late write", "void: 1 row, of attempt 2", f"{rows}; {refused}", kept)


def _died(facts: Facts) -> Verdict:
    ends = Counter(outcome for job in facts.bad.values() for outcome in job.outcomes)
    promised = ends["crashed"] + ends["overran"]
    how = ", ".join(f"{count} {how}" for how, count in Counter(facts.deaths).items())
    seen = f"{len(facts.deaths)}: {how}" if how else "none"
    return Verdict("workers that died", f"{promised}, by two bad jobs", seen, len(facts.deaths) == promised)


def _stayed(facts: Facts) -> Verdict:
    clean = not any(facts.exit_codes)
    seen = f"pid {facts.pid} for {facts.age:.0f} s" if facts.same_process else f"pid {facts.pid} has ended"
    seen += ", then drained clean" if clean else f"; exit codes {' and '.join(map(str, facts.exit_codes))}"
    return Verdict("the supervisor", "one pid to the end", seen, facts.same_process and clean)


def how_ended(outcomes: Sequence[str], status: str) -> str:
    """Return in words how a job has come to its end, over all its attempts."""
    if not outcomes:
        return f"never ran, {status}"
    if len(set(outcomes)) == 1 and len(outcomes) > 1:
        return f"{outcomes[0]} {_times(len(outcomes), 'time')}, {status}"
    told = ", ".join(f"{outcome} at attempt {attempt}" for attempt, outcome in enumerate(outcomes, 1))
    return told if outcomes[-1] == status else f"{told}, {status}"


def reason(job: BadJob) -> str:
    """Return why the job's last bad run ended as it did, from its row in `job_runs`."""
    run = next((run for run in reversed(job.runs) if run["outcome"] != "done"), None)
    if run is None:
        return ""
    error = run["error"]
    why = str(error.get("message", "")).removeprefix(f"{run['outcome']}: ")
    if error.get("class"):
        why = f"{error['class']}: {why}"
    if place := hung_in(run.get("stack")):
        why += f" in {place}"
    return why


def hung_in(stack: str | None) -> str:
    """Return the innermost place of a stack that was kept, as file:line and function; nothing if none was."""
    frame = re.search(r'File "(?:.*/)?([^/"]+)", line (\d+) in (\w+)', stack or "")
    return f"{frame[3]}(), {frame[1]}:{frame[2]}" if frame else ""


def _times(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _number(count: int | None) -> str:
    return "none" if count is None else f"{count:,}"
