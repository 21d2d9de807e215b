"""The handlers of the demo: what good ones look like, and four bad ones.

A good handler keeps long work out of its transactions, says how far it is, and leaves the tenant to the policy. Its
arguments are the payload; what it returns is kept as the job's result.
"""

import itertools
import os
import time

from fencepost import Job, handler
from fencepost.demo.sql import statement


@handler("invoice.count")
def count_invoices(job: Job, *, seconds: float) -> dict[str, int]:
    """Count the tenant's invoices: all that can be seen, since the policy shows a tenant its own and no others."""
    with job.transaction() as conn:
        row = conn.execute(statement("count_invoices")).fetchone()
    for step in range(1, 5):
        time.sleep(seconds / 4)  # The mail server that is told is slow. Nothing of ours is open meanwhile.
        job.progress(step, 4)
    return {"invoices": row[0] if row else 0}


@handler("bad.raises", max_attempts=3)
def raises(job: Job) -> None:  # noqa: ARG001
    """Raise, each time."""
    raise ValueError("no invoice has the number 4711")


@handler("bad.exits", max_attempts=3)
def exits(job: Job) -> None:  # noqa: ARG001
    """Take the process down, past everything that Python would still do: no error, no outcome, no goodbye."""
    time.sleep(0.2)
    os._exit(1)


@handler("bad.hangs", max_attempts=3, max_runtime=2)
def hangs(job: Job) -> None:  # noqa: ARG001
    """Hold the interpreter's lock in C for days: no signal handler, no thread and no exception gets a turn."""
    sum(itertools.repeat(1, 10**13))


@handler("bad.writes_late", max_attempts=3)
def writes_late(job: Job, *, seconds: float) -> None:
    """Work for a while, then write a row. Frozen in between, this run wakes up when the job is another's."""
    time.sleep(seconds)
    with job.transaction() as conn:
        conn.execute(statement("write_report"), {"job": job.id, "attempt": job.attempt})
