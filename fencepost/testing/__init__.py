"""Run jobs in your tests: inline, in your own transaction, without processes.

    from fencepost.testing import drain, run

    assert run(conn, count_invoices, {"month": "2026-10"}, tenant=2).result == {"invoices": 7}

    enqueue(conn, count_invoices, {"month": "2026-10"}, tenant=2)
    assert [ran.outcome for ran in drain(conn)] == ["done"]

`run` runs one handler without enqueuing it, `drain` runs what is due; `arun` and `adrain` do so on an AsyncConnection. Outcomes
mean what they mean in a worker, whose code judges them. All happens in the transaction that is open on your connection: it
stays open, nothing is committed, and rolled back it leaves nothing.

Invariant: to the caller a run is what it wrote and its outcome. Tenant, role and settings, deferred constraints and the
transaction itself are as they were.

What is not the same as in a worker:

- There is no other process. A handler that hangs, hangs the test; one that kills its process, kills the test run. Max runtime
  is not kept, and nothing asks a run to stop. What it leaves in the process (threads, programs, signal handlers) stays.
- Nobody else is there: no lease can be lost, and no fence refuses a write of another run.
- The transactions of a job are savepoints. Their isolation level is the caller's, no time limit is set in them, and what
  deferred triggers do (other than to raise) comes with the caller's own COMMIT.
- now() stands still since the caller's transaction began. `drain` looks at the clock instead, once, when it is called.
- A session can't be made as new: temporary tables, session-level locks, and settings of your own (`my.setting`, other than the
  tenant's) stay to the end of the caller's transaction or session. A ROLLBACK takes all but the locks.
- A handler that sends COMMIT or ROLLBACK has failed, as it would in a worker; but the transaction that it ended is the
  caller's. `drain` goes no further then.
- KeyboardInterrupt, and what a test tool raises past `except Exception`, is not the job's: it comes out of `run` and `drain`.
"""

from fencepost.testing.draining import adrain, drain
from fencepost.testing.inline import InlineRun, arun, run

__all__ = ["InlineRun", "adrain", "arun", "drain", "run"]
