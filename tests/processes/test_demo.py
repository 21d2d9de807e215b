"""`fencepost demo` as anyone runs it: what it shows, and what is left of it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from fencepost.demo import main, server
from fencepost.demo.facts import NAMES, BadJob, Count, Facts, verdicts
from fencepost.demo.show import View, drawn, summary
from fencepost.demo.supervisors import Worker
from support.waiting import wait_until

WIDTH = 200

NOT_THE_DEMOS_OWN = {
    "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nowhere",
    "FENCEPOST_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nowhere",
    "FENCEPOST_SCHEMA": "elsewhere",
    "FENCEPOST_LEASE": "no duration",
    "PGHOSTADDR": "127.0.0.2",
    "PGSERVICE": "unknown",
    "PGOPTIONS": "-c no.such=setting -c work_mem=nonsense",
}


class Demo:
    """The demo, in a process of its own; all that it starts and leaves bears its temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fencepost", "demo"],
            env={**os.environ, **NOT_THE_DEMOS_OWN, "TMPDIR": str(folder), "COLUMNS": str(WIDTH)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def read_until(self, text: str) -> None:
        """Read its output until it has told of something."""
        for line in self._process.stdout:
            self.output += line
            if text in line:
                return
        pytest.fail(f"the demo ended without {text!r}:\n{self.output}")

    def signal(self, signum: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(signum)

    def wait(self, within: float) -> int:
        """Wait for its end, read the rest of its output, and return its exit code."""
        rest, _ = self._process.communicate(timeout=within)
        self.output += rest
        return self._process.returncode

    def left(self) -> list[str]:
        """Return the processes and files that are left of it."""
        processes = [f"{process.pid} {process.name()}" for process in psutil.process_iter() if self._is_of_it(process)]
        return processes + [str(path) for path in self.folder.iterdir()]

    def end(self) -> None:
        """Kill it and what is left of it."""
        self._process.kill()
        self._process.communicate()
        for process in psutil.process_iter():
            if self._is_of_it(process):
                process.kill()

    def _is_of_it(self, process: psutil.Process) -> bool:
        try:
            if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                return False
            return process.environ().get("TMPDIR") == str(self.folder)
        except psutil.Error:
            return False


@pytest.fixture
def start_demo() -> Iterator[Callable[[], Demo]]:
    # Not pytest's own: that is closed to the user that root's server runs as, and its path is too long for a socket.
    folder = Path(tempfile.mkdtemp(prefix="fencepost-test-"))
    folder.chmod(0o755)
    started: list[Demo] = []

    def start() -> Demo:
        started.append(Demo(folder))
        return started[-1]

    yield start
    for demo in started:
        demo.end()
    shutil.rmtree(folder)


# ---- all of it


def test_all_that_the_demo_promises_is_seen_and_nothing_is_left_behind(start_demo):
    demo = start_demo()
    code = demo.wait(within=55)
    assert code == 0, demo.output
    for text in [
        "all 100 right, 103,707 invoices",
        "all 100 at attempt 1",
        "failed 3 times, dead: ValueError: no invoice has the number 4711",
        "crashed 3 times, dead: left with exit code 1",
        "overran 3 times, dead: killed by SIGKILL (signal 9) in hangs(), jobs.py:",
        "lost at attempt 1, done at attempt 2",
        "1 row, of attempt 2; attempt 1 was refused when it woke up",
        "6: 3 left with exit code 1, 3 killed by SIGKILL (signal 9)",
        "Everything as promised",
    ]:
        assert text in demo.output, demo.output
    pid = re.search(r"supervisor (\d+) starts 4 workers", demo.output)[1]
    assert re.search(rf"the supervisor .* pid {pid} for \d+ s, then drained clean", demo.output)
    assert demo.left() == []


# ---- ended before its end


@pytest.mark.parametrize("milestone", ["PostgreSQL is started", "jobs are enqueued"])
def test_interrupted_the_demo_leaves_at_once_and_leaves_nothing(start_demo, milestone):
    demo = start_demo()
    demo.read_until(milestone)
    demo.signal(signal.SIGINT)
    code = demo.wait(within=10)
    assert (code, demo.left()) == (130, []), demo.output
    assert "Traceback" not in demo.output
    assert demo.output.endswith("fencepost: stopped by SIGINT, nothing is left behind\n")


def test_killed_the_demo_takes_all_with_it(start_demo):
    demo = start_demo()
    demo.read_until("jobs are enqueued")
    demo.signal(signal.SIGKILL)
    wait_until(lambda: not demo.left(), within=10, what="the end of all that the demo had started")


def test_without_its_postgresql_the_demo_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(server, "installed", lambda: False)
    assert main.run() == 1
    assert capsys.readouterr().err.endswith("pip install 'fencepost[embedded]'\n")


# ---- what it makes of what it sees


def run(attempt: int, outcome: str, **error: str) -> dict[str, object]:
    return {"attempt": attempt, "outcome": outcome, "error": error, "stack": None, "seconds": 0.1}


def bad_job(number: int, kind: str, status: str, *outcomes: str) -> BadJob:
    runs = [run(attempt, outcome) for attempt, outcome in enumerate(outcomes, 1)]
    return BadJob(number, kind, status, len(runs), 3, 1.0, runs)


AS_PROMISED = Facts(
    counts=[Count(tenant, "done", 20_000 // tenant, claims=1, runs=1) for tenant in range(1, 101)],
    bad={
        job.kind: job
        for job in [
            bad_job(1, "bad.raises", "dead", "failed", "failed", "failed"),
            bad_job(2, "bad.exits", "dead", "crashed", "crashed", "crashed"),
            bad_job(3, "bad.hangs", "dead", "overran", "overran", "overran"),
            bad_job(4, "bad.writes_late", "done", "lost", "done"),
        ]
    },
    reports=[2],
    late_write_refused=True,
    deaths=["left with exit code 1"] * 3 + ["killed by SIGKILL (signal 9)"] * 3,
    pid=4711,
    age=12.3,
    same_process=True,
    exit_codes=[0, 0],
)


def broken(**changes: object) -> list[tuple[str, str]]:
    """Return the promises that are not kept where something differs from what is promised, and what was seen."""
    return [(verdict.what, verdict.seen) for verdict in verdicts(replace(AS_PROMISED, **changes)) if not verdict.kept]


def test_what_is_as_promised_is_no_broken_promise():
    assert broken() == []


def test_a_tenant_that_saw_anothers_invoices_is_named():
    counts = [replace(count, invoices=20_000) if count.tenant == 50 else count for count in AS_PROMISED.counts]
    assert broken(counts=counts) == [("100 tenants", "99 right: tenant 50 20,000 instead of 400")]
    console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    with console.file:
        console.print(summary(counts, []))
    assert re.search(r"50 +400 +20,000 +wrong", console.export_text())


def test_a_tenant_that_was_not_counted_is_missed():
    assert [what for what, _ in broken(counts=AS_PROMISED.counts[:-1])] == ["100 tenants"]


def test_a_disturbed_job_is_named():
    counts = [replace(count, claims=2) if count.tenant == 3 else count for count in AS_PROMISED.counts]
    assert broken(counts=counts) == [("their jobs", "not those of tenants 3")]


@pytest.mark.parametrize("kind", NAMES)
def test_a_bad_job_that_ends_otherwise_is_told(kind):
    bad = {**AS_PROMISED.bad, kind: bad_job(9, kind, "queued", "failed")}
    assert (NAMES[kind], "failed at attempt 1, queued: ") in [(what, f"{seen}: ") for what, seen in broken(bad=bad)]


def test_a_late_write_that_got_through_is_told():
    assert broken(reports=[2, 1]) == [("its late write", "2 rows, of attempt 2 and 1; attempt 1 was refused when it woke up")]


def test_a_worker_that_died_of_no_bad_job_is_told():
    assert [what for what, _ in broken(deaths=[*AS_PROMISED.deaths, "killed by SIGSEGV"])] == ["workers that died"]


def test_a_supervisor_that_ended_or_drained_badly_is_told():
    assert [what for what, _ in broken(same_process=False)] == ["the supervisor"]
    assert broken(exit_codes=[0, 75]) == [("the supervisor", "pid 4711 for 12 s; exit codes 0 and 75")]


@pytest.mark.parametrize("width", [80, 120])
def test_the_live_table_fits_and_shows_an_empty_slot(width):
    workers = [Worker(slot, 40000 + slot, "invoice.count #101 (attempt 1 of 5)") for slot in (1, 3, 4)]
    view = View(63, 4711, 12.3, 3, workers, [(name, "failed, failed; waits for attempt 3") for name in NAMES.values()])
    console = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    with console.file:
        console.print(drawn(view))
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    assert max(map(len, lines)) <= width
    assert any(re.match(r"2 +a new worker is forked", line) for line in lines)
