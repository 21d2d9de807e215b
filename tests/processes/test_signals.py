"""What signals do to a supervisor: other workers, more of them, a pause, a look inside. Each is logged, and none is lost."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from signal import SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2, SIGWINCH

import psutil
import pytest

from support.databases import Database
from support.jobs import Jobs
from support.processes import Supervisor
from support.servers import Server
from support.waiting import wait_until

REPLACED = "all workers are replaced"


def code(version: int, more: str = "") -> dict[str, str]:
    """Return a module of handlers of some version."""
    return {
        "deployed.py": f"""
import time
from handlers_for_tests import marked

@marked("version")
def version(job):
    return {version}

@marked("slow_version")
def slow_version(job, *, seconds):
    time.sleep(seconds)
    return {version}
{more}
"""
    }


def events(supervisor: Supervisor, *wanted: str) -> list[str]:
    return [line["event"] for line in supervisor.logs() if line["event"] in wanted]


def said(supervisor: Supervisor, event: str, times: int = 1) -> None:
    """Wait until it has said that, as often."""
    try:
        wait_until(lambda: len(events(supervisor, event)) >= times, within=15)
    except AssertionError:
        raise AssertionError(f"{event!r} was not said {times} times; the log ends:\n{supervisor.tail()}") from None


# ---- HUP


def test_a_rolling_restart_takes_up_new_handlers_and_ends_no_job(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """The old ones finish what they run, with the old code; then only the new code runs, its new kinds too."""
    supervisor = start_supervisor(handlers="deployed", files=code(1))
    old = supervisor.wait_for_workers(2)
    running = jobs.enqueue("slow_version", {"seconds": 2})
    jobs.wait_for_mark(running)
    supervisor.put(code(22, '@marked("new")\ndef new(job):\n    return "new"'))
    new = jobs.enqueue("new")
    supervisor.signal(SIGHUP)
    said(supervisor, REPLACED)
    assert jobs.get(running).status == "done", "replaced before its job had ended"
    assert (jobs.get(running).result, jobs.get(running).attempts) == (1, 1)
    assert jobs.wait_for(jobs.enqueue("version")).result == 22
    assert jobs.wait_for(new).result == "new"
    assert not set(old) & set(supervisor.workers())
    assert [line for line in supervisor.logs() if line["level"] == "warning"] == [], "a deploy is no trouble"


def test_workers_are_replaced_one_at_a_time(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """None leaves before the one before it has a successor that is ready."""
    supervisor = start_supervisor(concurrency=4)
    said(supervisor, "a worker is ready", 4)
    supervisor.signal(SIGHUP)
    said(supervisor, REPLACED)
    order = events(supervisor, "a worker is ready", "a worker has left")[4:]
    assert order == ["a worker has left", "a worker is ready"] * 4
    assert jobs.wait_for(jobs.enqueue("ok")).attempts == 1


BROKEN = {
    "this is no Python": "SyntaxError",
    "import there_is_no_such_module": "there_is_no_such_module",
    "import os; os._exit(3)": "left with exit code 3",
    "import ctypes; ctypes.string_at(0)": "SIGSEGV",
    "import time; time.sleep(60)": "took longer than FENCEPOST_BOOT_TIMEOUT",
    "": "no handler is registered",
}


def test_handlers_that_can_no_longer_be_imported_keep_the_old_workers(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """It says so, once for each try, and goes on; mended, they are taken up by the next HUP."""
    supervisor = start_supervisor(handlers="deployed", files=code(1), boot_timeout="2s")
    old = supervisor.wait_for_workers(2)
    for text, reason in BROKEN.items():
        supervisor.put({"deployed.py": text})
        supervisor.signal(SIGHUP)
        supervisor.wait_for_log(lambda line, reason=reason: line["level"] == "error" and reason in line["error"])
        assert supervisor.workers() == old
        assert jobs.wait_for(jobs.enqueue("version")).result == 1
    supervisor.put(code(333))
    supervisor.signal(SIGHUP)
    said(supervisor, REPLACED)
    assert jobs.wait_for(jobs.enqueue("version")).result == 333
    errors = [line["event"] for line in supervisor.logs() if line["level"] == "error"]
    assert errors == ["the new handlers can't be used: the workers go on with the old ones"] * len(BROKEN)


def test_a_rolling_restart_that_comes_while_another_goes_on_begins_anew(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """What runs at the end is the last deploy, in every slot."""
    supervisor = start_supervisor(handlers="deployed", files=code(1), concurrency=3)
    supervisor.wait_for_workers(3)
    running = jobs.enqueue("slow_version", {"seconds": 2})
    jobs.wait_for_mark(running)
    for version in (22, 333, 4444):
        supervisor.put(code(version))
        supervisor.signal(SIGHUP)
        supervisor.wait_for_log("SIGHUP: the workers are replaced, one at a time, each after its job")
    said(supervisor, REPLACED)
    assert jobs.get(running).status == "done"
    slow = [jobs.enqueue("slow_version", {"seconds": 0.5}) for _ in range(3)]
    assert [jobs.wait_for(job).result for job in slow] == [4444, 4444, 4444]


def test_workers_are_replaced_while_the_database_is_away(
    start_supervisor: Callable[..., Supervisor], own_server: Server, own_database: Database
) -> None:
    """None of it needs the database; they work when it is back."""
    supervisor = start_supervisor(own_database.worker_url, concurrency=2)
    old = supervisor.wait_for_workers(2)
    own_server.stop()
    supervisor.signal(SIGHUP)
    said(supervisor, REPLACED)
    assert not set(old) & set(supervisor.workers())
    own_server.start()
    jobs = Jobs(own_database)
    assert jobs.wait_for(jobs.enqueue("ok"), within=20).attempts == 1


# ---- TTIN, TTOU


def test_the_number_of_workers_goes_up_and_down(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """One more works at once; one fewer leaves after its job; the last one stays."""
    supervisor = start_supervisor(concurrency=1)
    supervisor.wait_for_workers(1)
    supervisor.signal(SIGTTIN)
    supervisor.wait_for_log(lambda line: line["event"] == "SIGTTIN: one worker more" and line["workers"] == 2)
    supervisor.wait_for_workers(2)
    running = [jobs.enqueue("slow", {"seconds": 1.5}) for _ in range(2)]
    for job in running:
        jobs.wait_for_mark(job)
    supervisor.signal(SIGTTOU)
    supervisor.wait_for_log("SIGTTOU: one worker fewer, after its job")
    supervisor.signal(SIGTTOU)
    supervisor.wait_for_log("SIGTTOU: the last worker stays; SIGTSTP stops claiming")
    supervisor.wait_for_workers(1)
    assert [jobs.wait_for(job).attempts for job in running] == [1, 1]
    assert jobs.wait_for(jobs.enqueue("ok")).attempts == 1


def test_a_worker_that_was_about_to_go_is_kept_by_one_more(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """Its slot is filled again after it, with its number."""
    supervisor = start_supervisor(concurrency=2)
    old = supervisor.wait_for_workers(2)
    running = [jobs.enqueue("slow", {"seconds": 1}) for _ in range(2)]
    for job in running:
        jobs.wait_for_mark(job)
    supervisor.signal(SIGTTOU)
    supervisor.wait_for_log("SIGTTOU: one worker fewer, after its job")
    supervisor.signal(SIGTTIN)
    supervisor.wait_for_log("SIGTTIN: one worker more")
    wait_until(lambda: supervisor.workers() != old)
    assert len(supervisor.wait_for_workers(2)) == 2
    assert [jobs.wait_for(job).attempts for job in running] == [1, 1]


def test_one_fewer_lets_a_job_end_that_has_only_just_begun(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """Its worker was ready for less time than the supervisor takes to notice."""
    supervisor = start_supervisor(concurrency=1)
    supervisor.wait_for_workers(1)
    for _ in range(4):
        job = jobs.enqueue("slow", {"seconds": 0.4})
        supervisor.signal(SIGTTIN)
        other = jobs.enqueue("slow", {"seconds": 0.4})
        jobs.wait_for_mark(job)
        jobs.wait_for_mark(other)
        supervisor.signal(SIGTTOU)
        assert [(jobs.wait_for(one).attempts, jobs.outcomes(one)) for one in (job, other)] == [(1, ["done"])] * 2
        supervisor.wait_for_workers(1)


# ---- TSTP, CONT


def test_a_pause_stops_claiming_and_nothing_else(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """What runs goes on; what comes is left for others, also by workers that are new; and after CONT it is taken at once."""
    paused = start_supervisor(concurrency=2)
    workers = paused.wait_for_workers(2)
    running = jobs.enqueue("slow", {"seconds": 1})
    jobs.wait_for_mark(running)
    paused.signal(SIGTSTP)
    paused.wait_for_log("SIGTSTP: nothing is claimed until SIGCONT; running jobs go on")
    left = [jobs.enqueue("ok") for _ in range(5)]
    assert jobs.wait_for(running).attempts == 1
    os.kill(workers[0], signal.SIGKILL)
    wait_until(lambda: workers[0] not in paused.workers())
    paused.wait_for_workers(2)
    wait_until(lambda: database.value("select state from fencepost.supervisors") == "paused")

    other = start_supervisor(concurrency=1)
    name = other.wait_for_log("the supervisor starts")["supervisor"]
    for job in left:
        jobs.wait_for(job)
    owners = {line["worker"] for line in other.logs() if "worker" in line}
    assert {run.worker.partition(":")[0] for job in left for run in jobs.runs(job)} <= owners, name
    other.signal(SIGTERM)
    assert other.wait() == 0

    waiting = jobs.enqueue("ok")
    paused.signal(SIGCONT)
    paused.wait_for_log("SIGCONT: jobs are claimed again")
    jobs.wait_for(waiting, within=2)
    wait_until(lambda: database.value("select state from fencepost.supervisors") == "running")


def test_nothing_ends_a_drain(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """Neither CONT nor any other habit; each says that it is without effect, but for USR1, which tells."""
    supervisor = start_supervisor(concurrency=1, drain_timeout="20s")
    job = jobs.enqueue("slow", {"seconds": 3})
    jobs.wait_for_mark(job)
    after = jobs.enqueue("ok")
    supervisor.signal(SIGTERM)
    supervisor.wait_for_log("drain: claiming no more, running jobs may finish")
    for signum in (SIGCONT, SIGTSTP, SIGCONT, SIGHUP, SIGTTIN, SIGTTOU):
        supervisor.signal(signum)
        supervisor.wait_for_log(lambda line, name=signum.name: line.get("signal") == name and "without effect" in line["event"])
    supervisor.signal(SIGUSR1)
    assert "in slow" in supervisor.wait_for_log(lambda line: line["event"] == "slot")["stack"]
    assert supervisor.wait() == 0
    assert jobs.get(job).status == "done"
    assert jobs.get(after).status == "queued"


def test_a_signal_without_effect_is_not_told_each_time(start_supervisor: Callable[..., Supervisor]) -> None:
    """A job can send thousands, and one that has set O_ASYNC on our stderr has each line answered with another."""
    supervisor = start_supervisor(concurrency=1)
    supervisor.wait_for_workers(1)
    supervisor.signal(SIGUSR2)
    supervisor.wait_for_log("a signal without effect")
    for _ in range(3):
        supervisor.signal(SIGUSR2)
    # Delivered after those, and told after them.
    supervisor.signal(SIGCONT)
    supervisor.wait_for_log("SIGCONT: ")
    assert len([line for line in supervisor.logs() if line["event"] == "a signal without effect"]) == 1


BEHIND_ANOTHER_ON_A_TERMINAL = """
import fcntl, os, signal, sys, termios

# What a shell is to a program that was started with &, on a terminal that only who is in front may write to.
log = os.dup(2)
screen, terminal = os.openpty()
fcntl.ioctl(terminal, termios.TIOCSCTTY)
settings = termios.tcgetattr(terminal)
settings[3] |= termios.TOSTOP
termios.tcsetattr(terminal, termios.TCSANOW, settings)
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    os.dup2(terminal, 1)
    os.dup2(terminal, 2)
    os.closerange(3, 20)
    os.execv(sys.argv[1], sys.argv[1:])
os.close(terminal)
signal.signal(signal.SIGTERM, lambda *_: os.kill(job, signal.SIGTERM))
try:
    while text := os.read(screen, 65536):
        os.write(log, text)
except OSError:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(job, 0)[1]))
"""


@pytest.mark.parametrize("preload", ["no", "yes"])
def test_what_is_written_in_the_background_of_a_terminal_is_no_signal(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, preload: str
) -> None:
    """With `stty tostop` the kernel answers it with TTOU: not one worker fewer, and none that is stopped as its job prints."""
    supervisor = start_supervisor(
        command=("-m", "fencepost", "run"),
        inside=(sys.executable, "-c", BEHIND_ANOTHER_ON_A_TERMINAL),
        handlers="prints_at_import",
        files={"prints_at_import.py": "from handlers_for_tests import *\nprint('imported')\n"},
        preload=preload,
    )
    supervisor.wait_for_workers(2)
    for job in [jobs.enqueue("prints", {"text": "a job's"}) for _ in range(4)]:
        assert jobs.wait_for(job).attempts == 1
    assert not [line for line in supervisor.logs() if "SIGTTOU" in line["event"]]
    os.kill(supervisor.wait_for_log("the supervisor starts")["pid"], SIGTTOU)
    supervisor.wait_for_log("SIGTTOU: one worker fewer, after its job")
    assert {"imported", "a job's"} <= {line.strip() for line in supervisor.lines()}


# ---- USR1


def test_a_look_inside_tells_what_every_slot_does(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """Where a job is in Python, on the server and in C; an idle worker has nothing to tell. None of them is disturbed."""
    supervisor = start_supervisor(concurrency=4, drain_timeout="0s")
    supervisor.wait_for_workers(4)
    in_c, in_python = jobs.enqueue("hangs_in_c"), jobs.enqueue("slow", {"seconds": 2})
    on_the_server = jobs.enqueue("hangs_on_the_server", {"seconds": 2})
    for job in (in_c, in_python, on_the_server):
        jobs.wait_for_mark(job)
    asleep = "select count(*) from pg_stat_activity where query like 'select pg_sleep%%' and wait_event = 'PgSleep'"
    wait_until(lambda: database.value(asleep))
    supervisor.signal(SIGUSR1)
    wait_until(lambda: len(events(supervisor, "slot")) == 4)
    told = {line.get("job"): line for line in supervisor.logs() if line["event"] == "slot"}
    assert "in hangs_in_c" in told[in_c]["stack"]
    assert re.search(r"handlers_for_tests\.py\", line \d+ in slow", told[in_python]["stack"])
    assert "in hangs_on_the_server" in told[on_the_server]["stack"]
    assert (told[None]["phase"], told[None]["stack"]) == ("idle", None)
    assert told[in_c]["ran_for"] > 0
    assert {line["pid"] for line in told.values()} == set(supervisor.workers())
    assert [jobs.wait_for(job).attempts for job in (in_python, on_the_server)] == [1, 1]


def test_a_look_inside_harms_no_job(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """Fifty of them, while Python enters and leaves functions as fast as it can: each is told by Python, as C might crash it.

    An earlier job has even had the signal answered from C.
    """
    supervisor = start_supervisor(concurrency=1, handlers="handlers_for_tests,handlers_of_leftovers")
    jobs.wait_for(jobs.enqueue("leaves", {"what": "faulthandler for a signal"}))
    job = jobs.enqueue("spins_for", {"seconds": 4}, max_attempts=1)
    jobs.wait_for_mark(job)
    for count in range(1, 51):
        supervisor.signal(SIGUSR1)
        wait_until(lambda count=count: len(events(supervisor, "slot")) >= count)
    stacks = [line["stack"] for line in supervisor.logs() if line["event"] == "slot"]
    assert sum("in spins_for" in (stack or "") for stack in stacks) > 25
    assert all(stack is None or stack.startswith("Thread MainThread") for stack in stacks)
    assert jobs.wait_for(job, within=15).attempts == 1


def test_what_was_told_is_not_the_stack_of_a_later_death(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """Where one tenant's job was is not booked for another's that dies in the same worker."""
    supervisor = start_supervisor(concurrency=1, handlers="handlers_for_tests,rude_at_import,handlers_of_leftovers")
    first = jobs.enqueue("spins_for", {"seconds": 1}, tenant=1)
    jobs.wait_for_mark(first)
    supervisor.signal(SIGUSR1)
    told = supervisor.wait_for_log(lambda line: line["event"] == "slot")
    assert "in spins_for" in told["stack"]
    jobs.wait_for(first)
    second = jobs.enqueue("exits_without_a_word", tenant=2, max_attempts=1)
    jobs.wait_for(second, "dead")
    assert jobs.runs(second)[0].stack is None
    third = jobs.enqueue("segfault", max_attempts=1)
    jobs.wait_for(third, "dead")
    assert "in segfault" in jobs.runs(third)[0].stack


def test_a_look_inside_does_not_fail_a_job_that_has_closed_descriptors(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """What can't be told is not raised in its code."""
    supervisor = start_supervisor(concurrency=1, handlers="rude_at_import")
    job = jobs.enqueue("waits_without_descriptors", {"seconds": 2}, max_attempts=1)
    jobs.wait_for_mark(job)
    for _ in range(5):
        supervisor.signal(SIGUSR1)
        wait_until(lambda: jobs.get(job).status == "running")
    assert jobs.wait_for(job).attempts == 1


# ---- none is lost


def test_signals_that_come_while_it_starts_are_obeyed(
    start_supervisor: Callable[..., Supervisor], own_server: Server, own_database: Database
) -> None:
    """Before its first worker, with the database away: each is logged, and has its effect when there is something to affect."""
    own_server.stop()
    supervisor = start_supervisor(own_database.worker_url, concurrency=1)
    supervisor.wait_for_log("the supervisor starts")
    for signum in (SIGTTIN, SIGTSTP, SIGHUP, SIGUSR1):
        supervisor.signal(signum)
        supervisor.wait_for_log(lambda line, name=signum.name: line["event"].startswith(name))
    own_server.start()
    supervisor.wait_for_workers(2, within=20)
    jobs = Jobs(own_database)
    job = jobs.enqueue("ok")
    wait_until(lambda: own_database.value("select state from fencepost.supervisors") == "paused")
    assert jobs.get(job).status == "queued"
    supervisor.signal(SIGCONT)
    assert jobs.wait_for(job).attempts == 1


def test_a_signal_in_the_first_instant_is_not_lost(database: Database, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Sent by the process that becomes the supervisor, before it has come to take signals: held, and then obeyed."""
    folder = tmp_path_factory.mktemp("early")
    program = (
        "import os, signal, sys\n"
        "from fencepost.supervisor import main\n"
        "hold = main.hold_signals\n"
        "def held():\n"
        "    kept = hold()\n"
        "    for number in (signal.SIGTTIN, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2): os.kill(os.getpid(), number)\n"
        "    return kept\n"
        "main.hold_signals = held\n"
        "sys.argv = ['fencepost', 'run']\n"
        "from fencepost.cli import main as cli\n"
        "cli()\n"
    )
    supervisor = Supervisor(database.worker_url, folder, command=("-c", program), concurrency=1)
    try:
        supervisor.wait_for_workers(2)
        for text in ("SIGTTIN: one worker more", "SIGHUP: ", "SIGUSR1: ", "a signal without effect"):
            supervisor.wait_for_log(text)
    finally:
        supervisor.stop()


FLOOD = [*map(int, (SIGUSR1, SIGUSR2, SIGCONT, SIGHUP, SIGCHLD, SIGALRM, SIGWINCH)), signal.SIGRTMIN, signal.SIGRTMAX]


def test_a_thousand_signals_a_second_fill_neither_log_nor_memory_and_jobs_run_on(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs
) -> None:
    """B3: for two seconds, at debug level, by a job; what comes faster than it can be of use is acted on as one."""
    supervisor = start_supervisor(concurrency=3)
    supervisor.wait_for_workers(3)
    # Once, so that all is in memory that this takes.
    supervisor.signal(SIGUSR1)
    supervisor.signal(SIGHUP)
    said(supervisor, REPLACED)
    process = psutil.Process(supervisor.pid)
    memory, descriptors, lines = process.memory_info().rss, process.num_fds(), len(supervisor.lines())
    beside = jobs.enqueue("slow", {"seconds": 2})
    jobs.wait_for_mark(beside)
    flood = jobs.enqueue("signals_its_supervisor", {"signals": FLOOD, "a_second": 1000, "seconds": 2})
    jobs.wait_for_mark(flood)
    assert jobs.wait_for(jobs.enqueue("ok")).attempts == 1
    assert jobs.get(flood).status == "running", "the other job was claimed and done meanwhile"
    assert jobs.wait_for(flood).result > 1500
    assert (jobs.get(flood).attempts, jobs.wait_for(beside).attempts) == (1, 1)
    told = Counter(line["event"] for line in supervisor.logs() if line["event"].startswith("SIG"))
    assert all(2 <= told[event] <= 70 for event in told), told
    assert len(supervisor.lines()) - lines < 500
    assert process.memory_info().rss - memory < 4_000_000
    # Two sessions that were not needed before: the heartbeat's, and the one for bookings.
    wait_until(lambda: process.num_fds() <= descriptors + 2, what="as many descriptors as before")


def test_a_flood_of_signals_does_not_hold_up_the_supervisor(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """B3: two jobs send all that have no effect, as fast as they can; TERM is obeyed at once, and both end well."""
    supervisor = start_supervisor(concurrency=2)
    supervisor.wait_for_workers(2)
    signals = [int(SIGUSR2), *range(signal.SIGRTMIN, signal.SIGRTMAX + 1)]
    flood = {"signals": signals, "a_second": 1e9, "seconds": 3}
    floods = [jobs.enqueue("signals_its_supervisor", flood) for _ in range(2)]
    for job in floods:
        jobs.wait_for_mark(job)
    supervisor.signal(SIGTERM)
    supervisor.wait_for_log("drain: claiming no more", within=2)
    assert [jobs.get(job).status for job in floods] == ["running"] * 2
    assert supervisor.wait() == 0
    assert [jobs.get(job).status for job in floods] == ["done"] * 2


def test_help_names_the_signals() -> None:
    """Whoever looks for them at three in the morning looks there."""
    text = subprocess.run(
        [sys.executable, "-m", "fencepost", "run", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for name in ("TERM", "INT", "QUIT", "HUP", "TTIN", "TTOU", "TSTP", "CONT", "USR1"):
        assert re.search(rf"\b{name}\b", text), name
