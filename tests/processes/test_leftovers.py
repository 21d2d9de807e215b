"""Whatever a job leaves in its process, the next job finds a clean one; and what wears a worker out has it replaced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

from support.jobs import Jobs
from support.processes import Supervisor
from support.waiting import wait_until
from support.ways_to_leave_something import LEAVES

HANDLERS = "handlers_for_tests,handlers_of_leftovers"


def test_whatever_a_job_leaves_in_its_process_the_next_one_finds_a_clean_one(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """process C12, E8: its own outcome stands, and what the next job sees is what the first one saw."""
    supervisor = start_supervisor(handlers=HANDLERS, concurrency=1)
    clean = jobs.wait_for(jobs.enqueue("looks")).result
    for what in LEAVES:
        job = jobs.enqueue("leaves", {"what": what})
        assert jobs.wait_for(job).attempts == 1, what
        found = jobs.wait_for(jobs.enqueue("looks")).result
        assert found == clean, what
    assert supervisor.is_alive()
    assert jobs.wait_for(jobs.enqueue("ok")).attempts == 1


def test_a_worker_that_is_as_it_was_is_not_replaced(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """A variable that a library sets, or a context, is put back and costs no worker."""
    start_supervisor(handlers=HANDLERS, concurrency=1)
    first = jobs.wait_for(jobs.enqueue("tells_its_process")).result
    for what in ("nothing", "a variable", "a context"):
        jobs.wait_for(jobs.enqueue("leaves", {"what": what}))
    assert jobs.wait_for(jobs.enqueue("tells_its_process")).result == first


def test_a_worker_is_replaced_after_as_many_jobs_as_it_may_run(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """C14: none of its jobs is run twice or fails for it, and the log names no other reason."""
    supervisor = start_supervisor(handlers=HANDLERS, concurrency=2, max_jobs_per_worker=3)
    enqueued = [jobs.enqueue("tells_its_process") for _ in range(30)]
    ran = [jobs.wait_for(job, within=20) for job in enqueued]
    assert {job.attempts for job in ran} == {1}
    assert all(len(jobs.runs(job)) == 1 for job in enqueued)
    counts = Counter(job.result for job in ran)
    assert max(counts.values()) == 3
    assert len(counts) >= 10
    supervisor.wait_for_workers(2)
    assert not [line for line in supervisor.logs() if line["level"] in ("warning", "error")]


def test_a_worker_whose_memory_has_grown_is_replaced_after_its_job(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """The job that made it grow is done; the next one runs in another process."""
    supervisor = start_supervisor(handlers=HANDLERS, concurrency=1, max_rss="200M")
    small = jobs.wait_for(jobs.enqueue("grows", {"megabytes": 10})).result
    large = jobs.wait_for(jobs.enqueue("grows", {"megabytes": 150})).result
    assert small == large
    assert jobs.wait_for(jobs.enqueue("tells_its_process")).result != large
    said = supervisor.wait_for_log("its memory comes near FENCEPOST_MAX_RSS")
    assert said["max_rss"] == "200M"
    assert 150 < int(said["taken"].rstrip("M")) < 200


def test_a_run_that_takes_more_memory_than_it_may_is_killed_with_the_figures_on_record(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """D6, G1: before the container's limit is reached; crashed, counted, and where it was stays on record."""
    supervisor = start_supervisor(handlers=HANDLERS, concurrency=2, max_rss="100M")
    innocent = jobs.enqueue("slow", {"seconds": 3})
    job = jobs.enqueue("grows", {"megabytes": 2000}, max_attempts=1)
    dead = jobs.wait_for(job, "dead")
    (run,) = jobs.runs(job)
    assert run.outcome == "crashed"
    assert "FENCEPOST_MAX_RSS is 100M" in dead.last_error
    assert run.error["killed_by"] == "supervisor (memory)"
    assert not run.error["out_of_memory"]
    assert 100 < int(run.error["detail"].partition("M,")[0].rpartition(" ")[2]) < 600
    assert run.max_rss > 100 * 1024**2
    assert "in grows" in run.stack
    assert jobs.wait_for(innocent).attempts == 1
    assert supervisor.is_alive()


def test_a_memory_limit_below_what_an_idle_worker_takes_is_refused(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """D6: said at the start, with the figures; not one worker a job."""
    supervisor = start_supervisor(handlers="large_at_import", max_rss="50M")
    job = jobs.enqueue("tells_its_memory")
    assert supervisor.wait() == 78
    (line,) = [line for line in supervisor.lines() if line.startswith("fencepost:")]
    assert "FENCEPOST_MAX_RSS=50M is too little, since an idle worker takes" in line
    assert jobs.get(job).attempts == 0


def test_what_a_job_has_left_is_named(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """A warning with what it was, once for each."""
    supervisor = start_supervisor(handlers=HANDLERS, concurrency=1)
    for count, what in enumerate(("a thread", "a directory", "a line that it wrote to"), start=1):
        jobs.wait_for(jobs.enqueue("leaves", {"what": what}))
        jobs.wait_for(jobs.enqueue("ok"))
        warnings = [line for line in supervisor.logs() if line["level"] == "warning" and "slot" in line]
        assert len(warnings) == count, what
        assert "worker is replaced" in warnings[-1]["event"], what


def test_a_replaced_worker_is_followed_at_once(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """No backoff for what is not a failure: thirty workers for thirty jobs, in a row."""
    supervisor = start_supervisor(handlers=HANDLERS, concurrency=1, max_jobs_per_worker=1)
    enqueued = [jobs.enqueue("tells_its_process") for _ in range(15)]
    ran = [jobs.wait_for(job, within=20) for job in enqueued]
    assert len({job.result for job in ran}) == len(ran)
    gaps = [(after.started_at - before.finished_at).total_seconds() for before, after in pairwise(ran)]
    assert sorted(gaps)[len(gaps) // 2] < 0.5
    wait_until(lambda: len(supervisor.workers()) == 1, within=5)


def test_a_worker_that_does_not_come_to_leave_is_killed(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """E8: nobody reads what its job has left in a buffer. Its job is done, and its slot is filled again."""
    supervisor = start_supervisor(handlers="rude_at_import,handlers_for_tests", concurrency=1, max_jobs_per_worker=1)
    job = jobs.enqueue("leaves_what_is_never_flushed")
    assert jobs.wait_for(job).attempts == 1
    assert jobs.wait_for(jobs.enqueue("ok"), within=8).attempts == 1
    assert jobs.outcomes(job) == ["done"]
    assert supervisor.is_alive()


def test_what_an_application_binds_is_there_for_its_job_alone(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """A context variable that a wrapper sets is seen by the handler, also by a coroutine, and by no later job."""
    start_supervisor(handlers="rude_at_import", concurrency=1)
    for kind in ("tells_its_tenant", "tells_its_tenant_async"):
        assert jobs.wait_for(jobs.enqueue(kind, tenant=7)).result == "7"
        assert jobs.wait_for(jobs.enqueue("tells_any_tenant", tenant=8)).result is None


def test_a_variable_that_a_library_sets_as_it_is_imported_stays(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """It will not set it again; what a job itself has set is gone, and what it changed is as before."""
    files = {
        "lazy.py": "import os\nos.environ['OF_THE_LIBRARY'] = 'set'\n",
        "variables.py": """
import os
from fencepost import handler

@handler("imports_and_tells", tenantless=True)
def imports_and_tells(job, *, own=None):
    import lazy
    found = {name: os.environ.get(name) for name in ("OF_THE_LIBRARY", "OF_THE_JOB", "HOME")}
    if own:
        os.environ |= {"OF_THE_JOB": own, "HOME": own}
    return found
""",
    }
    start_supervisor(handlers="variables", files=files, concurrency=1)
    first = jobs.wait_for(jobs.enqueue("imports_and_tells")).result
    assert jobs.wait_for(jobs.enqueue("imports_and_tells", {"own": "x"})).result == first
    assert jobs.wait_for(jobs.enqueue("imports_and_tells")).result == first
    assert (first["OF_THE_LIBRARY"], first["OF_THE_JOB"]) == ("set", None)
