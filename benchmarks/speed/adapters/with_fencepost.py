# /// script
# [tool.speed]
# manner = "job by job"
# batches = "the finish of a job and the claim of the next, in one statement"
# crash = "one counted attempt of the jobs that ran in the killed process"
# setup = [["{bin}/fencepost", "migrate"], ["{python}", "{adapter}", "setup"]]
# worker = ["env", "FENCEPOST_CONCURRENCY={n}", "{bin}/fencepost", "run"]
# login = "fencepost_worker"
# left = "select count(*) from fencepost.jobs where status <> 'done'"
#
# [tool.speed.env]
# FENCEPOST_HANDLERS = "with_fencepost"
# ///
"""Fencepost, as `fencepost run` runs it in a container: a process a job at a time, tenants, and a plain login."""

from __future__ import annotations

import time

import ours
import stamps

from fencepost import Job, handler


@handler("noop")
def noop(job: Job) -> None:
    """Do nothing."""


@handler("row", transaction=True)
def row(job: Job) -> None:
    """Write a row, in the transaction that also finishes the job."""
    job.conn.execute(ours.WRITE, [job.id])


@handler("stamp")
def stamp(job: Job, *, number: int) -> None:  # noqa: ARG001  # a handler is given its job
    """Note when it starts."""
    stamps.stamp(number)


@handler("hang", max_attempts=1)
def hang(job: Job, *, number: int) -> None:  # noqa: ARG001  # a handler is given its job
    """Note when it starts, and wait for the worker's end."""
    stamps.stamp(number)
    time.sleep(60)


if __name__ == "__main__":
    ours.was_asked()
