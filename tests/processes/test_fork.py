"""What a fork copies is nobody's trouble: neither the child's, nor the supervisor's, nor a sibling's."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL

from support.databases import Database
from support.jobs import Jobs
from support.processes import Supervisor
from support.tls import TlsProxy
from support.waiting import wait_until

HANDLERS = "handlers_for_tests,handlers_of_accidents,handlers_of_deaths"


def sockets(pid: int) -> set[str]:
    """Return the sockets that a process has open, as the kernel names them."""
    found = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(str(fd.readlink()))
        except FileNotFoundError:
            continue
    return {name for name in found if name.startswith("socket:")}


def test_no_child_holds_or_hurts_what_is_the_supervisors(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database, start_tls: Callable[[int], TlsProxy]
) -> None:
    """E4, F5, F6, F7: not a line of another, not a session, under TLS either: those live on, however a child leaves.

    When they are ended by others, the name of the server is looked up anew, in a thread; no fork meets one, and no worker ends
    with one.
    """
    url = start_tls(database.server.port).url(database.worker_url).replace("127.0.0.1", "localhost")
    supervisor = start_supervisor(url=url, handlers=HANDLERS, concurrency=2, backoff="0s")

    def sessions() -> set[int]:
        query = "select pid from pg_stat_activity where datname = %s and usename = %s and application_name like %s"
        return {row.pid for row in database.execute(query, [database.name, database.worker, "%% s%%"])}

    supervisor.wait_for_workers(2)
    jobs.wait_for(jobs.enqueue("slow", {"seconds": 2}))  # and a heartbeat in it
    own = wait_until(lambda: len(found := sessions()) >= 2 and found, what="the supervisor's sessions")
    for kind, payload in (("raises_system_exit", {"code": 0}), ("closes_descriptors", {}), ("exits", {"code": 0})):
        jobs.wait_for(jobs.enqueue(kind, payload, max_attempts=1), ("done", "dead"))
    killed = supervisor.wait_for_workers(2)[0]
    os.kill(killed, SIGKILL)
    wait_until(lambda: killed not in supervisor.workers(), what="the end of the killed worker")
    for _ in range(2):
        workers = supervisor.wait_for_workers(2)
        # One that has just become ready is still connecting.
        held = wait_until(
            lambda pids=(supervisor.pid, *workers): all(found := [sockets(pid) for pid in pids]) and found,
            what="sockets of all",
        )
        assert len(set.union(*held)) == sum(map(len, held)), "a socket is held by two"
        jobs.wait_for(jobs.enqueue("slow", {"seconds": 2}))
        assert own <= sessions()
    database.execute("select pg_terminate_backend(pid) from unnest(%s::int[]) pid", [list(own)])
    wait_until(lambda: len(sessions() - own) >= 2, what="new sessions")
    assert supervisor.workers() == workers
    os.kill(workers[0], SIGKILL)
    supervisor.wait_for_workers(2)
    assert jobs.wait_for(jobs.enqueue("ok")).attempts == 1
    assert not [line for line in supervisor.logs() if "more than one thread" in line["event"]]


HOLDS_UP_ITS_FIRST_CHILD = """
import logging, os, signal
forks = 0

def before():
    global forks
    forks += 1

def in_child():
    logging.getLogger("hook").warning("a child of %s", os.getppid())
    while forks == 1:
        signal.pause()

logging.basicConfig(filename="hook.log")
os.register_at_fork(before=before, after_in_child=in_child)
"""


def test_a_hook_of_the_fork_may_log_and_one_that_blocks_is_ended_at_the_boot_timeout(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """F3, D2, C5: killed in its first instant, before it had a group or a handler of its own, it takes nobody along."""
    files = {"sitecustomize.py": HOLDS_UP_ITS_FIRST_CHILD}
    supervisor = start_supervisor(concurrency=2, boot_timeout="2s", files=files)
    (ready,) = supervisor.wait_for_workers(1)
    assert jobs.wait_for(jobs.enqueue("ok")).attempts == 1
    late = supervisor.wait_for_log("not ready in time", within=4)
    died = supervisor.wait_for_log("a worker has died")
    assert (died["pid"], died["signal"], died["killed_by_us"]) == (late["pid"], "SIGKILL", "boot_timeout")
    assert ready in supervisor.wait_for_workers(2)
    assert len((supervisor.folder / "hook.log").read_text().splitlines()) == 3


PRINTS_TO_THE_END = """
from handlers_for_tests import marked

print("before the fork", end=" ")

@marked("prints_to_the_end")
def prints_to_the_end(job, *, number):
    print(f"the end of {number}", end=" ")
"""


def test_what_is_printed_before_a_fork_or_an_end_is_there_once(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """E9: though no line ends with it, and each worker leaves after its job. Before the first fork handlers are imported."""
    files = {"prints_to_the_end.py": PRINTS_TO_THE_END}
    supervisor = start_supervisor(
        handlers="prints_to_the_end", concurrency=2, max_jobs_per_worker=1, preload="yes", files=files
    )
    for job in [jobs.enqueue("prints_to_the_end", {"number": number}) for number in range(4)]:
        jobs.wait_for(job)
    wanted = sorted(["before the fork", *(f"the end of {number}" for number in range(4))])
    supervisor.wait_for_workers(2)
    supervisor.stop()
    text = supervisor.stdout.read_text()
    assert [text.count(words) for words in wanted] == [1] * 5


def test_siblings_draw_different_numbers(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """F8: forked from one process that has drawn before; a generator of the user's own has Python's hook to be reseeded."""
    start_supervisor(handlers="draws_at_import", concurrency=2, preload="yes", max_jobs_per_worker=1)
    drawn = [jobs.wait_for(job).result for job in [jobs.enqueue("draws") for _ in range(4)]]
    for what in drawn[0]:
        assert len({draw[what] for draw in drawn}) == 4, what
