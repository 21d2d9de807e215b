"""The torture run: `make torture`, with MINUTES=15, SEED=1, BREAK=fence or WITHOUT=burn,cancel where they are wanted."""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from support.servers import Installation, Server, new_data, temporary_folder
from torture.checker import Violation, check
from torture.field import Field
from torture.history import History
from torture.nemesis import Nemesis

AROUND = 16.0
"""Seconds of the run that its start and its coming to rest take, about."""

SELF_FENCED = ("the lease can't be kept: the run is killed", "the lease was lost: the run is killed")
REFUSED = "the lease was lost: this run is void"
TOLD = 12
"""Violations that are told, at most; of three jobs the history is told, too."""


def main() -> int:
    """Run, and return 0 if all claims hold."""
    minutes = float(os.environ.get("MINUTES") or 1)
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(10**6))
    broken = os.environ.get("BREAK", "")
    without = frozenset((os.environ.get("WITHOUT") or "").split(","))
    print(f"torture: SEED={seed} MINUTES={minutes:g}" + (f" BREAK={broken}" if broken else ""), flush=True)
    for name in [name for name in os.environ if name.startswith(("FENCEPOST_", "PG")) or name == "DATABASE_URL"]:
        del os.environ[name]
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="fencepost-torture-"))
    programs = temporary_folder(None)
    programs.chmod(0o755)
    try:
        installation = Installation.chosen(programs)
        server = Server.new(installation, new_data(installation, programs), track_commit_timestamp="on")
        try:
            server.start()
            field = Field(server, folder, seed, broken)
            try:
                Nemesis(field, seed, without).rage(max(10.0, 60 * minutes - AROUND))
                field.come_to_rest(within=60)
                history = field.close()
            finally:
                field.remove()
        finally:
            shutil.copy(server.log, folder / "server.log")
            server.remove()
    finally:
        shutil.rmtree(programs)
    violations = check(history)
    tell_counts(history, field.counts, folder, time.monotonic() - began)
    if violations:
        tell_violations(violations, history)
        print(
            f"\ntorture: FAILED, {len(violations)} violations. Again with SEED={seed}; the logs and the history are in {folder}"
        )
        return 1
    shutil.rmtree(folder)
    print("torture: all claims hold")
    return 0


def tell_counts(history: History, counts: Counter[str], folder: Path, took: float) -> None:
    """Print what has happened."""
    logs = [line for log in folder.glob("supervisor-*/stderr") for line in log.read_text(errors="replace").splitlines()]
    told = {
        "seconds": round(took),
        "jobs": len(history.jobs),
        **Counter(row.status for row in history.jobs),
        "runs": sum(line.what == "start" for line in history.lines),
        **{f"runs {how}": number for how, number in sorted(Counter(one.outcome for one in history.outcomes).items())},
        **dict(sorted(counts.items())),
        "runs stopped by self-fencing": sum(any(event in line for event in SELF_FENCED) for line in logs),
        "late writes refused": sum(line.what == "refused" for line in history.lines),
        "late finishes refused": sum(REFUSED in line for line in logs),
        "effects committed": len(history.effects),
    }
    print("; ".join(f"{what} {number}" for what, number in told.items()))


def tell_violations(violations: list[Violation], history: History) -> None:
    """Print what is wrong, and the history of the first jobs that it is wrong with."""
    for claim, number in Counter(violation.claim for violation in violations).items():
        print(f"VIOLATED {claim}: {number}")
    for violation in violations[:TOLD]:
        print(f"  {violation.claim}: job {violation.job} {violation.text}")
    for job in list(dict.fromkeys(violation.job for violation in violations if violation.job))[:3]:
        print(f"\nthe history of job {job}: {next((row for row in history.jobs if row.id == job), None)}")
        acts: dict[tuple[str, int], int] = {}
        for line in history.lines:
            if line.job == job or (not line.job and "host" in line.what):
                acts[line.what, line.pid] = acts.get((line.what, line.pid), 0) + 1
                if line.what not in ("act", "stray") or acts[line.what, line.pid] <= 3:
                    print(f"  {line}")
        for one in [*history.changes, *history.effects, *history.outcomes]:
            if one.job == job:
                print(f"  {one}")


if __name__ == "__main__":
    sys.exit(main())
