"""Run the model: with all rules nothing goes wrong, and without any one of them what it is there for does. `make model`.

`python docs/model/runs.py WORDS` runs those whose names hold the words, and shows how each thing that is wrong comes about.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from typing import NamedTuple

import locks
from model import COUNT, ENDLESS, LATE, ORPHAN, OVERLAP, REVIVED, STUCK, UNDONE, Found, Rules, explore


class Run(NamedTuple):
    """Rules, and what goes wrong under them: exactly this. One in which something is to be found ends where it is."""

    name: str
    rules: Rules
    expects: frozenset[str] = frozenset()
    without: int = 0
    is_limit: bool = False


def clean(name: str, **rules: object) -> Run:
    """Return a run in which nothing may go wrong."""
    return Run(name, Rules(**rules))  # type: ignore[arg-type]


def limit(name: str, wrong: str, **rules: object) -> Run:
    """Return a run in which all rules hold, and all the same this can't be kept from going wrong."""
    return Run(name, Rules(**rules), frozenset({wrong}), is_limit=True)  # type: ignore[arg-type]


def without(rule: int, name: str, wrong: str, **rules: object) -> Run:
    """Return a run without a rule, in which this must go wrong."""
    return Run(name, Rules(**rules), frozenset({wrong}), rule)  # type: ignore[arg-type]


CRASH, LOSS, FREEZE, STALL, FAILOVER, JUMP = ("crash",), ("loss",), ("freeze",), ("stall",), ("failover",), ("jump",)

TOGETHER: dict[str, object] = {"finish_and_claim": True, "jobs_fail": True, "interruptions": 0}
FROZEN: dict[str, object] = {"accidents": FREEZE, "faults": 1, "interruptions": 0}
FAILED_OVER: dict[str, object] = {"accidents": FAILOVER, "faults": 1, "interruptions": 0}
STEPS: dict[str, object] = {
    "accidents": JUMP, "faults": 1, "patience": 2, "one_sweeps": True, "alike": False, "interruptions": 0,
}  # fmt: skip

RUNS = [
    clean("all rules, and nothing happens"),
    clean("all rules, a worker dies", accidents=CRASH, faults=1),
    clean("all rules, an answer or a request is lost", accidents=LOSS, faults=1),
    clean("all rules, a supervisor stalls", accidents=STALL, faults=1),
    clean("all rules, one drains", drains=True, alike=False),
    clean("all rules, a job is cancelled", cancels=1),
    clean("all rules, the server's clock steps", **STEPS),
    clean("all rules, a clock misses a tick, the lease bears it", slow=1, lease=4, interruptions=0),
    clean("finish and claim, an answer or a request is lost", **TOGETHER, accidents=LOSS, faults=1),
    clean("finish and claim, one drains", **TOGETHER, drains=True, alike=False),
    clean("all rules, a host freezes: an overlap, nothing else", **FROZEN, ignores=(OVERLAP,)),
    clean("all rules, a failover: an overlap, nothing else", **FAILED_OVER, ignores=(OVERLAP, COUNT)),
    limit("a host freezes", OVERLAP, **FROZEN),
    limit("a failover loses a commit", OVERLAP, **FAILED_OVER),
    without(2, "the fence alone, status unread", LATE, matches="fence"),
    without(2, "fence and status, a failover loses a commit", LATE, matches="running", accidents=FAILOVER, faults=1),
    without(3, "the fence is looked at without a lock", LATE, commit="unlocked"),
    without(
        3, "fence and COMMIT in two messages, a host freezes", STUCK, commit="apart", accidents=FREEZE, faults=1, thaws=False
    ),
    without(7, "what was claimed late is started", OVERLAP, late_claim_is_given_back=False),
    without(8, "a lost answer is forgotten", ORPHAN, asks_after_a_lost_answer=False, accidents=LOSS, faults=1),
    without(10, "the deadline counts from the answer", OVERLAP, counts_from="answered"),
    without(10, "the margin is too small", OVERLAP, holds_for=2),
    without(10, "a kill takes longer than the margin", OVERLAP, kill_takes=2),
    without(10, "a clock is slower than the margin bears", OVERLAP, slow=1),
    without(
        11,
        "beats renew what the worker's name holds",
        STUCK,
        beats_by="name",
        asks_after_a_lost_answer=False,
        beats_arrive=True,
        ignores=(ORPHAN,),
        accidents=LOSS,
        faults=1,
        hosts=1,
        alike=False,
    ),
    without(13, "no timer, a supervisor stalls", OVERLAP, timer=False, accidents=STALL, faults=1),
    without(14, "an expired lease is swept at once", OVERLAP, accidents=JUMP, faults=1),
    without(14, "a look does not go by the claim", OVERLAP, looks_at_the_claim=False, max_attempts=3, **STEPS),
    without(
        16,
        "a death is booked while its session lives",
        ORPHAN,
        sessions_end_first=False,
        accidents=CRASH,
        faults=1,
    ),
    without(17, "a job is given back before its run is killed", OVERLAP, killed_first=False, drains=True, alike=False),
    without(17, "interruptions never count", ENDLESS, limits_interruptions=False),
    without(18, "a sweep does not read the cancel", REVIVED, cancels=1, reads_cancel=("failed", "crashed", "interrupted")),
    without(
        18,
        "a booking does not read the cancel",
        REVIVED,
        cancels=1,
        reads_cancel=("failed", "lost", "interrupted"),
        accidents=CRASH,
        faults=1,
    ),
    without(18, "a failure does not read the cancel", REVIVED, cancels=1, reads_cancel=("crashed", "lost"), jobs_fail=True),
    without(18, "giving back does not read the cancel", REVIVED, cancels=1, reads_cancel=("failed", "crashed", "lost")),
    without(18, "a job that is done can be cancelled", UNDONE, cancels=1, cancel_spares_the_done=False),
]


class Result(NamedTuple):
    """What a run has found, and how long it took."""

    run: Run
    found: Found
    seconds: float

    @property
    def is_as_expected(self) -> bool:
        """Whether exactly that went wrong which was to."""
        return set(self.found.traces) == self.run.expects


def result_of(run: Run) -> Result:
    """Carry out one run."""
    began = time.monotonic()
    # STUCK is only known at the end.
    until = next(iter(run.expects - {STUCK}), "")
    return Result(run, explore(run.rules, until), time.monotonic() - began)


def told(result: Result) -> str:
    """Return a run's line."""
    rule = f"{result.run.without or ('all' if result.run.is_limit else '-'):>4}"
    wrong = ", ".join(sorted(result.found.traces)) or "-"
    line = f"{rule}  {result.run.name:<52}{result.found.states:>9,}{result.seconds:>7.1f}  {wrong}"
    return line if result.is_as_expected else f"{line}   NOT AS EXPECTED: {', '.join(sorted(result.run.expects)) or 'nothing'}"


def deadlocks() -> bool:
    """Tell of the statement that ends and claims, and return whether it is as expected."""
    good = True
    for claim_reads_finish, expects in ((True, set[str]()), (False, {locks.DEADLOCK})):
        wrong = locks.wrong(claim_reads_finish=claim_reads_finish)
        name = "finish and claim, the claim reads the finish" if claim_reads_finish else "the claim does not read the finish"
        rule = "   -" if claim_reads_finish else "   9"
        bad = "" if wrong == expects else "   NOT AS EXPECTED"
        print(f"{rule}  {name:<52}{'':>16}  {', '.join(wrong) or '-'}{bad}")
        good = good and wrong == expects
    return good


def main(words: str) -> int:
    """Run what is asked for, on all cores, and return 1 if anything is not as expected."""
    chosen = [run for run in RUNS if words in run.name]
    print(f"{'rule':>4}  {'without it, or what happens':<52}{'states':>9}{'s':>7}  what goes wrong")
    good = True
    with multiprocessing.Pool(len(os.sched_getaffinity(0)), maxtasksperchild=1) as pool:
        for result in pool.imap(result_of, chosen, chunksize=1):
            print(told(result), flush=True)
            good = good and result.is_as_expected
            if words or not result.is_as_expected:
                for wrong, events in result.found.traces.items():
                    print(f"\n{wrong}:", *events, sep="\n    ")
    good = (deadlocks() if not words else True) and good
    print("as expected" if good else "NOT as expected: either a rule is not needed, or one is missing")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:])))
