"""A job that is scheduled starts when it is due: by a timer, and not by the next poll."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import pytest

from support.databases import Database
from support.jobs import Jobs
from support.processes import Supervisor

FAR_APART = {"handlers": "handlers_of_schedules", "poll": "30s", "log_level": "info"}

HANDLERS = {
    "handlers_of_schedules.py": """
import time
from fencepost import handler

@handler("is_due", tenantless=True)
def is_due(job):
    pass

@handler("keeps_busy", tenantless=True)
def keeps_busy(job, *, seconds):
    time.sleep(seconds)
"""
}

LATE = "select extract(epoch from started_at - run_at)::float8 as late from fencepost.jobs where kind = 'is_due'"


def due_after(database: Database, milliseconds: list[int]) -> None:
    """Schedule jobs, each in a commit of its own, as any language does."""
    for one in milliseconds:
        database.execute("select fencepost.enqueue('is_due', after => %s * interval '1 ms')", [one])


@pytest.mark.parametrize("supervisors", [1, 2])
def test_scheduled_jobs_start_when_they_are_due_however_far_apart_polls_are(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database, supervisors: int
) -> None:
    """Enqueued while all idle, and while nobody does; a busy worker that comes to rest sets the timer, too."""
    for _ in range(supervisors):
        start_supervisor(concurrency=1, files=HANDLERS, **FAR_APART).wait_for_workers(1)
    due_after(database, [600, 700, 800, 1000, 1200])
    for job in [row.id for row in database.execute("select id from fencepost.jobs order by id")]:
        jobs.wait_for(job)
    busy = [database.value("select fencepost.enqueue('keeps_busy', '{\"seconds\": 0.8}')") for _ in range(supervisors)]
    for job in busy:
        jobs.wait_for(job, "running")
    due_after(database, [1000, 1200, 1400, 1600, 1800])
    for job in [row.id for row in database.execute("select id from fencepost.jobs order by id")]:
        jobs.wait_for(job)
    late = [row.late for row in database.execute(LATE)]
    assert statistics.median(late) < 0.05, late
    assert max(late) < 0.5, late
