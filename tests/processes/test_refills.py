"""A worker that is forked while something else goes on in the supervisor's process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from support.jobs import Jobs
from support.processes import Supervisor
from support.waiting import wait_until

LOGS_BESIDE = """
import logging
import sys
import threading
import time


def log_for_ever():
    # Not while all is imported: with another thread at work that takes many times as long.
    while not hasattr(sys.modules.get("fencepost.supervisor.main"), "run"):
        time.sleep(0.01)
    while True:
        logging.getLogger("beside").warning("a line")


logging.basicConfig(filename="/dev/null", level=logging.DEBUG)
threading.Thread(target=log_for_ever, name="logs-beside", daemon=True).start()
"""
"""Put beside the supervisor by whoever set up its Python: it holds the lock of logging most of the time."""


def test_a_lock_that_another_thread_holds_as_a_worker_is_forked_does_not_stop_it(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """F1, C12: thirty killed, thirty ready soon; the thread is named once, as none that we know of."""
    supervisor = start_supervisor(
        concurrency=3, heartbeat="50ms", lease="6s", poll="30s", files={"sitecustomize.py": LOGS_BESIDE}
    )
    workers = supervisor.wait_for_workers(3)
    for _ in range(10):
        # One that dies at its first claim is not replaced at once: the next could do the same.
        wait_until(
            lambda: all(title.endswith("idle") for title in supervisor.titles(supervisor.workers())), what="idle workers"
        )
        killed = set(workers)
        for worker in killed:
            os.kill(worker, signal.SIGKILL)
        wait_until(lambda killed=killed: not killed & set(supervisor.workers()), within=1.0, what="the reaping")
        workers = supervisor.wait_for_workers(3, within=5.0)
    assert jobs.wait_for(jobs.enqueue("ok")).attempts == 1
    told = [line["threads"] for line in supervisor.logs() if "more than one thread" in line["event"]]
    assert told == ["logs-beside"]
    assert not [line for line in supervisor.logs() if "not ready in time" in line["event"]]
