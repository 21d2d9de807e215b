"""Containers: a limit of memory, the same name and pids again, and as little as a hardened one gives."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

import pytest

from support import nursery
from support.containers import MemoryGroup, inner, pod, without
from support.databases import Database
from support.jobs import Jobs
from support.processes import Supervisor, is_running
from support.waiting import wait_until

RUN = ("-m", "fencepost", "run")
HANDLERS = "handlers_for_tests,handlers_of_deaths,handlers_of_containers"
SHORT = {"lease": "4s", "heartbeat": "0.6s"}


@pytest.fixture
def memory() -> Iterator[MemoryGroup]:
    """A control group in which four workers have room, and no job that takes all it can get."""
    made = MemoryGroup(256 * 1024 * 1024)
    yield made
    made.remove()


def test_jobs_that_take_all_memory_have_crashed_for_want_of_it_and_nobody_else_notices(
    memory: MemoryGroup, start_supervisor: Callable[..., Supervisor], jobs: Jobs, tmp_path: Path
) -> None:
    """G1: the kernel kills them, two before the supervisor looks; each is told as what it is, and the slots are filled."""
    supervisor = start_supervisor(handlers=HANDLERS, command=RUN, inside=memory.inside, concurrency=3, backoff="0s")
    before = supervisor.wait_for_workers(3)
    innocent = jobs.enqueue("slow", {"seconds": 3})
    jobs.wait_for_mark(innocent)
    once = tmp_path / "now"
    greedy = [jobs.enqueue("eats_memory", {"once": str(once)}, max_attempts=1) for _ in range(2)]
    eaters = [jobs.wait_for_mark(job).pid for job in greedy]
    supervisor.signal(SIGSTOP)
    once.touch()
    wait_until(lambda: not any(map(is_running, eaters)), what="the end of both")
    supervisor.signal(SIGCONT)
    for job in greedy:
        assert jobs.wait_for(job, "dead").attempts == 1
        (run,) = jobs.runs(job)
        assert run.outcome == "crashed"
        assert run.error["message"] == "killed by SIGKILL (signal 9), out of memory"
        assert (run.error["out_of_memory"], run.error["killed_by"]) == (True, None)
        assert run.max_rss > 50_000_000
    after = supervisor.wait_for_workers(3)
    assert set(before) & set(after) == {jobs.marks(innocent)[0].pid}
    assert jobs.wait_for(innocent).attempts == 1
    # Somebody else's kill, with the others counted before: it is not told as one of them.
    other = jobs.enqueue("kills_itself", {"signum": SIGKILL}, max_attempts=1)
    jobs.wait_for(other, "dead")
    assert not jobs.runs(other)[0].error["out_of_memory"]


def test_a_job_whose_container_is_killed_as_a_whole_is_lost_and_in_the_end_dead(
    memory: MemoryGroup, start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """G1, D7: as memory.oom.group does, and container runtimes. Another supervisor books each run, after its lease."""
    inside = start_supervisor(handlers=HANDLERS, command=RUN, inside=memory.inside, **SHORT)
    poison, innocent = jobs.enqueue("slow", {"seconds": 30}, max_attempts=1), jobs.enqueue("slow_until_attempt", {"attempt": 2})
    for job in (poison, innocent):
        jobs.wait_for_mark(job)
    held_until = jobs.get(innocent).locked_until
    assert len(memory.processes()) == 3
    memory.kill()
    assert inside.wait(5) == -SIGKILL
    start_supervisor(handlers=HANDLERS, **SHORT)
    assert jobs.wait_for(poison, "dead").attempts == 1
    assert jobs.wait_for(innocent).attempts == 2
    assert (jobs.outcomes(poison), jobs.outcomes(innocent)) == (["lost"], ["lost", "done"])
    assert jobs.runs(innocent)[0].finished_at >= held_until


def test_a_container_that_comes_back_with_the_same_name_and_pids_is_another(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """G4: names are random; what the one before has left running stays its own until the lease is over."""

    def start() -> Supervisor:
        return start_supervisor(handlers=HANDLERS, command=RUN, inside=pod("fencepost-0"), concurrency=2, **SHORT)

    def wait_for_row(other: str) -> tuple[str, list[object], dict[int, str]]:
        asked = "select name, host, pid, slots from fencepost.supervisors where name <> %s and jsonb_array_length(slots) = 2"
        (row,) = wait_until(
            lambda: [row for row in database.execute(asked, [other]) if all("pid" in slot for slot in row.slots)], what="a row"
        )
        return row.name, [row.host, row.pid], {slot["pid"]: slot["worker"] for slot in row.slots}

    first = start()
    job = jobs.enqueue("slow_until_attempt", {"attempt": 2})
    jobs.wait_for_mark(job)
    old, there, workers = wait_for_row("")
    first.signal(SIGKILL)
    first.wait()
    left = jobs.get(job)
    second = start()
    new, again, others = wait_for_row(old)
    assert (there, set(workers)) == (again, set(others)), "the pids are the same, or nothing is shown here"
    assert again[0] == "fencepost-0"
    assert old != new
    assert not set(workers.values()) & set(others.values())
    assert jobs.wait_for(job).attempts == 2
    assert jobs.outcomes(job) == ["lost", "done"]
    lost, done = jobs.runs(job)
    assert (lost.worker, lost.fence) == (left.locked_by, left.fence)
    assert lost.finished_at >= left.locked_until, "it is the first one's until its lease is over"
    assert done.worker.partition(":")[0] in others.values()
    inner(second).send_signal(SIGTERM)
    assert second.wait() == 0


ROOT, SHM, PIDFD = "root to write", "/dev/shm", "pidfd_open"


@pytest.mark.parametrize(
    ("lacking", "what"),
    [
        ([ROOT], ["/: Read-only file system", "{folder}: Read-only file system"]),
        ([SHM], ["/dev/shm: No such file or directory"]),
        ([f"{PIDFD}: EPERM"], ["pidfd_open: Operation not permitted"]),
        (
            [SHM, ROOT, f"{PIDFD}: ENOSYS", "signalfd: EPERM"],
            [
                "/: Read-only file system",
                "{folder}: Read-only file system",
                "/dev/shm: No such file or directory",
                "pidfd_open: Function not implemented",
            ],
        ),
    ],
    ids=["read-only root", "no shm", "no pidfd_open", "all"],
)
def test_it_works_with_as_little_as_a_hardened_container_gives(
    lacking: list[str], what: list[str], start_supervisor: Callable[..., Supervisor], jobs: Jobs, tmp_path: Path
) -> None:
    """G6: a job runs, a crash is known at once and booked, `check` works, and a drain ends well."""
    supervisor = start_supervisor(handlers=HANDLERS, command=RUN, inside=without(*lacking), concurrency=2)
    tells = jobs.wait_for(jobs.enqueue("tells_what_it_lacks"))
    assert tells.result == [line.format(folder=supervisor.folder) for line in what]
    go = tmp_path / "go"
    beside = jobs.enqueue("ends_when_told", {"path": str(go)})
    jobs.wait_for_mark(beside)
    for kind, name in (("segfault", "SIGSEGV"), ("kills_itself", "SIGKILL")):
        crashes = jobs.enqueue(kind, max_attempts=1)
        jobs.wait_for(crashes, "dead", within=3)
        assert jobs.runs(crashes)[0].error["signal"] == name
    supervisor.signal(SIGTERM)
    supervisor.wait_for_log("drain: ")
    assert jobs.get(beside).status == "running"
    go.touch()
    assert supervisor.wait() == 0
    assert (jobs.get(beside).status, jobs.get(beside).attempts) == ("done", 1)


@pytest.mark.parametrize(("code", "says"), [("import handlers_for_tests", ""), ("import time; time.sleep(60)", "took longer")])
def test_check_tries_the_handlers_without_pidfd_open(code: str, says: str, database: Database, tmp_path: Path) -> None:
    """G6: it waits for the trial by asking the kernel again and again, and no longer than a start may take."""
    (tmp_path / "tried.py").write_text(code)
    environment = {
        **os.environ,
        "DATABASE_URL": database.worker_url,
        "FENCEPOST_HANDLERS": "tried",
        "FENCEPOST_BOOT_TIMEOUT": "0.5s" if says else "60s",
        "PYTHONPATH": str(Path(nursery.__file__).parent),
    }
    command = [*without(f"{PIDFD}: EPERM"), sys.executable, "-m", "fencepost", "check"]
    check = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert check.returncode == (70 if says else 0), check.stderr
    assert says in check.stdout + check.stderr
