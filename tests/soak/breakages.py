"""Break the product on purpose, one promise at a time, and see that the tests find it: `make breakages`.

Works in a copy of the last commit, with an environment of its own. A breakage that no test finds, or whose text is no longer in
the code, is a failure; so is a test that fails with nothing broken.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
ONLY = os.environ.get("ONLY", "")
AT_MOST = 240


@dataclass(frozen=True)
class Breakage:
    """What is broken: in `file`, `text` becomes `instead`. Each of `tests` must pass before and fail after."""

    name: str
    file: str
    text: str
    instead: str
    tests: tuple[str, ...]


BREAKAGES = (
    Breakage(
        "a commit does not look at the fence",
        "migrations/0001_the_queue.sql",
        "    if not found then\n        raise exception 'job % is no longer held",
        "    if false then\n        raise exception 'job % is no longer held",
        ("tests/processes/test_supervisors.py::test_a_frozen_writer_comes_too_late",),
    ),
    Breakage(
        "the heartbeat prolongs a job whoever holds it",
        "fencepost/jobs/heartbeat.sql",
        "j.id = beat.id and j.fence = beat.fence and j.locked_by = beat.name and j.locked_until is not null\n        limit",
        "j.id = beat.id and j.locked_until is not null\n        limit",
        ("tests/table/test_heartbeat.py",),
    ),
    Breakage(
        "the attempt is not counted at the claim",
        "fencepost/jobs/claim.sql",
        "attempts = j.attempts + 1,",
        "attempts = greatest(j.attempts, 1),",
        ("tests/processes/test_crashes.py::test_a_job_that_kills_its_process_runs_as_often_as_it_may_and_is_dead",),
    ),
    Breakage(
        "the tenant is set for the session",
        "fencepost/jobs/context.sql",
        "'fencepost_job.tenant'), %(tenant)s, true)",
        "'fencepost_job.tenant'), %(tenant)s, false)",
        ("tests/processes/test_tenants.py",),
    ),
    Breakage(
        "a job's session is not cleaned",
        "fencepost/jobs/reset_all.sql",
        "\nreset all",
        "\nselect 1",
        ("tests/processes/test_tenants.py",),
    ),
    Breakage(
        "a run whose lease can't be kept goes on",
        "supervisor/watch.py",
        "            return Verdict.lease_is_over",
        "            return Verdict.leave_it",
        ("tests/processes/test_outages.py::test_a_run_is_killed_before_a_lease_that_cannot_be_kept_is_over",),
    ),
    Breakage(
        "a worker outlives its supervisor",
        "supervisor/fork.py",
        "_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)",
        "pass",
        ("tests/processes/test_supervisors.py::test_the_jobs_of_a_killed_supervisor_are_taken_over",),
    ),
    Breakage(
        "max runtime is not kept",
        "supervisor/watch.py",
        "            return Verdict.past_max_runtime",
        "            return Verdict.leave_it",
        ("tests/processes/test_hangs.py",),
    ),
    Breakage(
        "an expired lease is swept at the first look",
        "supervisor/leases.py",
        "if now - since >= patience]",
        "if now - since >= 0]",
        ("tests/processes/test_outages.py", "tests/unit", "tests/processes/test_supervisors.py"),
    ),
    Breakage(
        "a kill does not look whom it hits",
        "supervisor/kill.py",
        "if record is not None and (record.claim != why.claim or record.phase in (Phase.idle, Phase.leaving)):",
        "if False:",
        ("tests/processes/test_by_hand.py",),
    ),
    Breakage(
        "what a job has left outside of its group lives on",
        "supervisor/reap.py",
        "    if died or state.strays:\n        end_strays(state)",
        "    state.strays.clear()",
        ("tests/processes/test_hangs.py", "tests/machines/test_pid_1.py"),
    ),
    Breakage(
        "the server does not look after a machine that has vanished",
        "fencepost/settings.py",
        '"tcp_keepalives_idle": "5"',
        '"tcp_keepalives_idle": "7200"',
        ("tests/machines/test_networks.py",),
    ),
    Breakage(
        "a supervisor that stalls is not ended",
        "supervisor/stall.py",
        "            self._deadline.at(ends_at(held, boottime(), state.settings))",
        "            pass",
        ("tests/processes/test_stalls.py",),
    ),
    Breakage(
        "a statement of the supervisor's may take for ever",
        "supervisor/database.py",
        "asyncio.wait({task}, timeout=max(0.0, deadline - boottime()))",
        "asyncio.wait({task}, timeout=None)",
        ("tests/processes/test_statements.py",),
    ),
    Breakage(
        "a heartbeat waits for long before it connects again",
        "supervisor/database.py",
        "return BETWEEN_CONNECTS(state) * min(1.0, self._limit / 4)",
        "return BETWEEN_CONNECTS(state)",
        ("tests/processes/test_statements.py",),
    ),
)


def main() -> int:
    """Try them all, and print a line for each."""
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "fencepost"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
        subprocess.run(["make", "-C", str(copy), ".venv/.installed"], check=True, stdout=subprocess.DEVNULL)
        for breakage in BREAKAGES:
            if ONLY not in breakage.name:
                continue
            began = time.monotonic()
            found = _try(copy, breakage)
            print(
                f"{'found ' if found else 'MISSED'}  {breakage.name}: {found or '-'} ({time.monotonic() - began:.0f} s)",
                flush=True,
            )
            if not found:
                missed.append(breakage.name)
    return 1 if missed else 0


def _try(copy: Path, breakage: Breakage) -> str:
    """Return the first test that finds it, or '' if none does."""
    file = copy / breakage.file
    whole = file.read_text()
    if whole.count(breakage.text) != 1:
        print(f"{breakage.file} does not hold once: {breakage.text!r}")
        return ""
    if failed := _failing(copy, breakage.tests):
        print(f"fails with nothing broken: {failed}")
        return ""
    file.write_text(whole.replace(breakage.text, breakage.instead))
    try:
        return _failing(copy, breakage.tests)
    finally:
        file.write_text(whole)


def _failing(copy: Path, tests: tuple[str, ...]) -> str:
    command = [".venv/bin/pytest", "-q", "-x", "-n2", "-p", "no:cacheprovider", "--no-header", "-rfE", "--tb=no", *tests]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=AT_MOST, check=False)
    failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return failed[0] if failed else ""


if __name__ == "__main__":
    sys.exit(main())
