"""Delete what has been done or cancelled for longer than RETENTION: in small steps, beside the work and never in its way.

A pass goes along the jobs by their ids, and waits where the next one is too young to be old enough. Jobs that it has gone past,
since they were dead, scheduled, running, locked or done only lately, are come back to by the next pass, an hour later. Each
supervisor does all of this for itself, and one that finds others at work leaves it to them.

Invariant: no step waits for a job's lock, or takes more of the time than a fifth, and a look that finds nothing costs next to
nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

import psycopg
import structlog
import tenacity

from fencepost.board import boottime
from fencepost.jobs.prune import Pruned, prune
from fencepost.supervisor.database import Away, Conn
from fencepost.supervisor.state import State

log = structlog.get_logger()

AT_ONCE = 500
"""Jobs that a step looks at, or deletes, at most: a large payload each, and it still takes less than a second."""

LOOK_EVERY = 60.0
"""Seconds, at most and but for chance, between two steps once there is nothing to delete."""

BY_CHANCE = tenacity.wait_random(0.5, 1.5)
"""How much of that it is: supervisors that were started together don't look together."""

BETWEEN_FRUITLESS_STEPS = 1.0
"""Seconds between two steps of a pass that goes along jobs which stay."""

ANEW_EVERY = 3600.0
"""Seconds, at most, from the beginning of a pass to that of the next, if it is through by then; and a 24th of RETENTION."""

SHARE_OF_TIME = 1 / 5

QUICK, SLOW = 0.01, 0.1
"""Seconds that a step takes if the next may go further, and from which on it goes less far."""

FURTHER = 10


@dataclass(frozen=True, slots=True)
class Pass:
    """Where a pass along the jobs has come to: up to the id `mark`. `span` is how many ids the next step goes along."""

    began: float
    mark: int = 0
    span: int = AT_ONCE

    def after(self, step: Pruned) -> Pass:
        """Return where it is after `step`.

        Nothing to delete is perhaps nothing at all: then it goes further at once, or gaps in the ids would take for ever. What
        is slow is done in smaller pieces: large payloads, or deleted jobs that an old transaction keeps in the index.
        """
        if step.took > SLOW:
            span = max(1, self.span // FURTHER)
        elif step.ripe:
            span = min(AT_ONCE, self.span * FURTHER)
        else:
            span = self.span * FURTHER if step.took < QUICK else self.span
        return replace(self, mark=step.mark, span=AT_ONCE if step.ended else span)

    def refused(self) -> Pass:
        """Return where to go on where the server has refused: in smaller pieces, and in the end without the one it is about."""
        if self.span == 1:
            return replace(self, mark=self.mark + 1)
        return self.narrowed()

    def narrowed(self) -> Pass:
        """Return it with a smaller step to come."""
        return replace(self, span=max(1, min(self.span, AT_ONCE) // FURTHER))


def pause_after(step: Pruned, seldom: float) -> float:
    """Return how many seconds to leave the database alone after `step`: `seldom`, where it is through or others are at it."""
    if step.ended or step.deleted < step.ripe:
        return seldom
    return step.took * (1 / SHARE_OF_TIME - 1) if step.ripe else BETWEEN_FRUITLESS_STEPS


async def prune_finished(state: State) -> None:
    """Prune for as long as the supervisor lives."""
    state_of_try = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    along = Pass(boottime())
    pause = _look_every(state) * BY_CHANCE(state_of_try)
    while True:
        await asyncio.sleep(pause)
        pause = seldom = _look_every(state) * BY_CHANCE(state_of_try)
        try:
            step = await state.duty.run(partial(_step, state=state, along=along))
        except Away:
            # Said by the link; and perhaps it was this that took too long.
            along = along.narrowed()
        except psycopg.Error as error:
            log.warning("finished jobs were not deleted", error=str(error).strip())
            along = along.refused()
        else:
            pause = pause_after(step, seldom)
            along = along.after(step)
            if step.ended and boottime() - along.began >= min(ANEW_EVERY, state.settings.retention / 24):
                along = Pass(boottime())


def _look_every(state: State) -> float:
    # What is kept for seconds only is not kept for a minute more.
    return min(LOOK_EVERY, state.settings.retention)


async def _step(conn: Conn, state: State, along: Pass) -> Pruned:
    age = timedelta(seconds=state.settings.retention)
    return await prune(conn, state.settings.schema, age=age, mark=along.mark, span=along.span, most=AT_ONCE)
