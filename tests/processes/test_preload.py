"""Handlers imported once, before the first fork."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import psutil
import pytest

from support.jobs import Jobs
from support.processes import Supervisor
from support.waiting import wait_until


def test_preloaded_handlers_are_imported_once_and_their_memory_is_shared(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """Three workers with 60 MB of objects take little more than one, also after collections, and count as small."""
    supervisor = start_supervisor(handlers="large_at_import,handlers_for_tests", concurrency=3, preload="yes", max_rss="60M")
    workers = supervisor.wait_for_workers(3)
    assert (supervisor.folder / "imports").read_text().split() == [str(supervisor.pid)]
    told = [jobs.wait_for(jobs.enqueue("tells_its_memory")).result for _ in range(6)]
    assert all(memory["all"] > 90 * 1024**2 for memory in told)
    assert all(memory["own"] < 20 * 1024**2 for memory in told)
    assert all(memory["proportional"] < memory["all"] / 2 for memory in told)
    assert supervisor.workers() == workers


def test_a_refill_with_preloaded_handlers_imports_nothing(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """Ready well within the second that the import takes, measured from before the fork to when the supervisor knows."""
    files = {"slow_at_import.py": "import time; time.sleep(1)"}
    supervisor = start_supervisor(
        handlers="slow_at_import,large_at_import,handlers_for_tests", files=files, concurrency=1, preload="yes"
    )
    (worker,) = supervisor.wait_for_workers(1)
    for _ in range(5):
        os.kill(worker, signal.SIGKILL)
        (worker,) = wait_until(lambda old=worker: [pid for pid in supervisor.wait_for_workers(1) if pid != old], within=5)
    jobs.wait_for(jobs.enqueue("ok"))

    def readiness() -> list[float]:
        return [line["after"] for line in supervisor.logs() if line["event"] == "a worker is ready"]

    # The supervisor looks ten times a second: the last of them may be at its job before it is known to be ready.
    wait_until(lambda: len(readiness()) == 6, within=5)
    assert max(readiness()) < 0.5
    assert len((supervisor.folder / "imports").read_text().split()) == 1


NOBODY_READS = """
import os, sys
there, here = os.pipe()
os.dup2(here, 1)
os.close(here)
if {full}:
    os.set_inheritable(there, True)
    os.set_blocking(1, False)
    try:
        while os.write(1, bytes(4096)):
            pass
    except BlockingIOError:
        os.set_blocking(1, True)
else:
    os.close(there)
os.execv(sys.executable, [sys.executable, "-m", "fencepost", "run"])
"""


@pytest.mark.parametrize("stdout", ["without a reader", "full", "closed by a module"])
def test_what_preloaded_modules_print_keeps_no_worker_from_being_forked(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, stdout: str
) -> None:
    """E9, E6: it would be written by each child again, so it goes out before the first fork, or nowhere."""
    close = "import sys; sys.stdout.close()" if stdout == "closed by a module" else ""
    supervisor = start_supervisor(
        handlers="prints_at_import",
        files={"prints_at_import.py": f"from handlers_for_tests import *\nprint('once', end='')\n{close}\n"},
        command=("-m", "fencepost", "run") if close else ("-c", NOBODY_READS.format(full=stdout == "full")),
        preload="yes",
        boot_timeout="1s",
        concurrency=1,
    )
    (worker,) = supervisor.wait_for_workers(1)
    os.kill(worker, signal.SIGKILL)
    assert jobs.wait_for(jobs.enqueue("ok")).attempts == 1
    assert not [line for line in supervisor.logs() if line["level"] == "error"]


def test_preloading_what_starts_threads_is_refused_with_their_names(start_supervisor: Callable[..., Supervisor]) -> None:
    """F4: a fork would copy what they have locked, but not them."""
    supervisor = start_supervisor(handlers="starts_threads_at_import", preload="yes")
    assert supervisor.wait() == 78
    (line,) = [line for line in supervisor.lines() if line.startswith("fencepost:")]
    assert "started threads (first-of-the-library, second-of-the-library)" in line
    assert "FENCEPOST_PRELOAD=no" in line
    assert checked(supervisor) == [line.removeprefix("fencepost: ")]


def test_check_and_run_refuse_the_same_memory_limit(start_supervisor: Callable[..., Supervisor]) -> None:
    """D6: told with the figures and the cure, before a start and at it; what is preloaded does not count."""
    supervisor = start_supervisor(handlers="large_at_import", max_rss="60M")
    assert supervisor.wait() == 78
    (line,) = [line for line in supervisor.lines() if line.startswith("fencepost:")]
    figures = re.compile(r"\d+M")
    assert [figures.sub("", text) for text in checked(supervisor)] == [figures.sub("", line.removeprefix("fencepost: "))]


def checked(supervisor: Supervisor) -> list[str]:
    """Return what `fencepost check` refuses with the settings of a supervisor, in the words of `run`."""
    done = subprocess.run(
        [sys.executable, "-m", "fencepost", "check", "--json"],
        cwd=supervisor.folder,
        env=supervisor.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 78
    return [f"{refusal['what']}: {refusal['cure']}" for refusal in json.loads(done.stdout)["refusals"]]


def test_handlers_that_start_threads_work_without_preloading(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """They are the worker's own then, and no leftover of a job."""
    supervisor = start_supervisor(handlers="starts_threads_at_import", concurrency=1)
    first = jobs.wait_for(jobs.enqueue("counts_threads")).result
    assert jobs.wait_for(jobs.enqueue("counts_threads")).result == first
    assert not [line for line in supervisor.logs() if line["level"] == "warning"]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("import threading; threading.Thread(target=threading.Event().wait, name='of-a-library').start()", "of-a-library"),
        ("import socket; PAIR = socket.socketpair()", "socket:["),
    ],
    ids=["a thread", "a socket"],
)
def test_what_workers_can_not_share_is_refused_and_the_supervisor_leaves(
    start_supervisor: Callable[..., Supervisor], line: str, named: str
) -> None:
    """F4: at once, though the thread goes on; a database session at import would be one for all workers."""
    text = f"{line}\nfrom handlers_for_tests import *\n"
    supervisor = start_supervisor(handlers="opens_at_import", files={"opens_at_import.py": text}, preload="yes")
    assert supervisor.wait(5) == 78
    (said,) = [line for line in supervisor.lines() if line.startswith("fencepost:")]
    assert named in said
    assert checked(supervisor)[0].partition(named)[0] == said.removeprefix("fencepost: ").partition(named)[0]


def test_what_preloaded_modules_do_to_their_process_is_not_done_to_the_supervisor(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """A policy for event loops, signals, mask, timers, a time limit for sockets, logs, something for the exit; and a file."""
    supervisor = start_supervisor(handlers="rude_at_import,handlers_for_tests", preload="yes", concurrency=1)
    (worker,) = supervisor.wait_for_workers(1)
    logged = [jobs.enqueue("logs_to_its_file") for _ in range(3)]
    assert {jobs.wait_for(job, within=5).result for job in logged} == {worker}
    assert (supervisor.folder / "app.log").read_text().split("\n")[:3] == [f"job {job}" for job in logged]
    # With SIGPIPE at its default, the first word to a worker without a line would end it.
    job = jobs.enqueue("closes_what_it_can")
    jobs.wait_for_mark(job)
    supervisor.signal(signal.SIGTSTP)
    supervisor.wait_for_log("SIGTSTP")
    supervisor.signal(signal.SIGHUP)
    supervisor.wait_for_log("SIGHUP")
    supervisor.signal(signal.SIGUSR1)
    supervisor.wait_for_log("SIGUSR1")
    supervisor.signal(signal.SIGCONT)
    assert jobs.wait_for(job).attempts == 1
    assert jobs.wait_for(jobs.enqueue("ok")).attempts == 1
    asked_at = time.monotonic()
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 0
    assert time.monotonic() - asked_at < 3


def test_preloaded_handlers_that_do_not_import_or_hang_end_the_start(start_supervisor: Callable[..., Supervisor]) -> None:
    """Exit 70, with the reason; never a supervisor that waits without end."""
    broken = start_supervisor(handlers="there_is_no_such_module", preload="yes")
    hanging = start_supervisor(handlers="hangs_at_first_import", preload="yes", boot_timeout="1s")
    assert (broken.wait(), hanging.wait()) == (70, 70)
    assert "No module named 'there_is_no_such_module'" in broken.tail()
    assert "importing took longer than FENCEPOST_BOOT_TIMEOUT" in hanging.tail()


def test_a_supervisor_can_be_stopped_while_it_preloads(start_supervisor: Callable[..., Supervisor]) -> None:
    """TERM is obeyed at once: nothing runs yet."""
    supervisor = start_supervisor(handlers="hangs_at_first_import", preload="yes")
    wait_until(lambda: (supervisor.folder / "hung").exists() or _catches_term(supervisor.pid), within=10)
    wait_until(lambda: "supervisor" in " ".join(psutil.Process(supervisor.pid).cmdline()), within=10)
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait(3) == 0


def _catches_term(pid: int) -> bool:
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        caught = next(line for line in file if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
