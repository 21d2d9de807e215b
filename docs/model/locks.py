"""Finish and claim in one statement, against a cancel of many jobs: who waits for whom (protocol, rule 9).

Two jobs. The worker ends the first one and claims the second one in one statement; a cancel by hand locks both, in either
order. A claim skips a row that is locked, and so waits for nobody; a finish waits.
"""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

DEADLOCK = "DEADLOCK"

Plan = tuple[tuple[str, str], ...]
"""What a statement locks, in turn, and what it does where that is locked."""

FINISH = ("ended", "wait")
CLAIM = ("next", "skip")


class State(NamedTuple):
    """How far each of the two has come, and which rows it holds."""

    done: tuple[int, int] = (0, 0)
    holds: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())


def steps(plans: tuple[Plan, Plan], state: State) -> list[State]:
    """Return what may happen next: each takes its next lock, skips it, or has to wait. At its end it lets go of all."""
    after = []
    for me in (0, 1):
        if state.done[me] == len(plans[me]):
            continue
        row, where_locked = plans[me][state.done[me]]
        if row in state.holds[1 - me] and where_locked == "wait":
            continue
        taken = state.holds[me] | ({row} - state.holds[1 - me])
        done = state.done[me] + 1
        mine = frozenset() if done == len(plans[me]) else taken
        after.append(
            State((done, state.done[1]), (mine, state.holds[1]))
            if me == 0
            else State((state.done[0], done), (state.holds[0], mine))
        )
    return after


def wrong(*, claim_reads_finish: bool) -> set[str]:
    """Return what goes wrong, whichever way the two go."""
    # Nothing in SQL puts one part of a statement before another, but that it reads the other.
    orders = [(FINISH, CLAIM)] if claim_reads_finish else [(FINISH, CLAIM), (CLAIM, FINISH)]
    for statement in orders:
        for first, second in permutations(("ended", "next")):
            plans = (statement, ((first, "wait"), (second, "wait")))
            waiting = [State()]
            while waiting:
                state = waiting.pop()
                after = steps(plans, state)
                if not after and state.done != (2, 2):
                    return {DEADLOCK}
                waiting += after
    return set()
