"""How the death of a worker is told of the run that it held."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fencepost.board import Phase, Record
from fencepost.job import Ended
from fencepost.jobs.claim import Claim
from fencepost.supervisor.deaths import DeadWorker, Death, outcome_of
from fencepost.supervisor.state import Kill

NOW = datetime.now(UTC)
CLAIM = Claim(7, 3, "w1:5", "default", "ok", "{}", "1", 0, NOW, 1, 3, None, NOW)
LEFT = Death(0, None, core_dumped=False, max_rss=None)
SEGV = Death(None, 11, core_dumped=False, max_rss=None)

CASES = {
    "it crashed": (Phase.running, 5, SEGV, None, Ended.crashed),
    "it left in the middle of its job, whatever its exit code says": (Phase.running, 5, LEFT, None, Ended.crashed),
    "it crashed before its job began": (Phase.claiming, 5, SEGV, None, Ended.crashed),
    "it left before it knew what it had claimed": (Phase.claiming, 5, LEFT, None, Ended.interrupted),
    "it left at a claim of which nothing is known": (Phase.claiming, 4, LEFT, None, Ended.crashed),
    "it crashed as it finished the run before": (Phase.finishing, 4, SEGV, None, Ended.interrupted),
    "it crashed as it finished this run": (Phase.finishing, 5, SEGV, None, Ended.crashed),
    "it crashed as it finished one long before": (Phase.finishing, 3, SEGV, None, Ended.crashed),
    "it died as its stacks were written": (Phase.running, 5, SEGV, Kill("max_runtime", 5), Ended.overran),
    "the kill was meant for an earlier run": (Phase.running, 5, SEGV, Kill("max_runtime", 4), Ended.interrupted),
    "it was killed for its memory": (Phase.running, 5, SEGV, Kill("memory", 5, detail="it took 612M"), Ended.crashed),
}


@pytest.mark.parametrize(("phase", "claim", "death", "kill", "ended"), CASES.values(), ids=CASES)
def test_a_death_is_told_by_what_the_worker_did_and_who_ended_it(
    phase: Phase, claim: int, death: Death, kill: Kill | None, ended: Ended
) -> None:
    """Counted, unless none of the job's code can have run, or we ended it for another's sake."""
    dead = DeadWorker("w1", 1, 100, death, Record(phase, claim=claim), kill, None)
    outcome = outcome_of(CLAIM, dead, timedelta(seconds=15))
    assert outcome.ended is ended
    assert outcome.summary is not None
    assert kill is None or kill.detail in outcome.summary
