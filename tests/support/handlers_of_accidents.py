"""Handlers for what jobs do to their process, their connection and their transaction."""

from __future__ import annotations

import asyncio
import concurrent.futures
import ctypes
import itertools
import logging
import os
import platform
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
from handlers_for_tests import insert_row, mark, marked

from fencepost import Job, Stopped, aenqueue, handler

# ---- what they raise and return


@marked("raises_system_exit")
def raises_system_exit(job: Job, *, code: Any) -> None:
    """Leave the way scripts do."""
    sys.exit(code)


@marked("raises_by_name")
def raises_by_name(job: Job, *, name: str) -> None:
    """Raise a builtin exception."""
    raise __builtins__[name]  # type: ignore[index]


@marked("raises_cancelled")
async def raises_cancelled(job: Job) -> None:
    """Raise what a coroutine gets when it is stopped, without having been."""
    raise asyncio.CancelledError


@marked("raises_a_stop_of_its_own")
def raises_a_stop_of_its_own(job: Job) -> None:
    """Raise what a stop raises, without having been asked to stop."""
    raise Stopped("drain")


@marked("recurses")
def recurses(job: Job) -> None:
    """Recurse, through three chained exceptions."""
    try:
        try:
            _recurse()
        except RecursionError as error:
            raise ValueError("second") from error
    except ValueError:
        _recurse()


def _recurse() -> None:
    _recurse()


class Untellable(Exception):
    """An exception that can't be told, pickled or rebuilt."""

    def __init__(self, one: object, _other: object) -> None:
        super().__init__(one)
        self.lock = threading.Lock()

    def __str__(self) -> str:
        raise ValueError("no text")

    def __repr__(self) -> str:
        return 5  # type: ignore[return-value]

    def __reduce__(self) -> str:
        while True:
            time.sleep(1)


@marked("raises_what_cannot_be_told")
def raises_what_cannot_be_told(job: Job) -> None:
    """Raise it."""
    raise Untellable(1, 2)


class Unrebuildable(Exception):
    """An exception that pickle can't take, nor make again from its arguments."""

    def __init__(self, text: str, _other: object) -> None:
        super().__init__(text)
        self.socket = socket.socket()
        self.call = lambda: None


@marked("raises_what_cannot_be_rebuilt")
def raises_what_cannot_be_rebuilt(job: Job) -> None:
    """Raise it."""
    raise Unrebuildable("the message", 2)


@marked("allocates_more_than_it_may")
def allocates_more_than_it_may(job: Job) -> None:
    """Ask for more memory than a limit allows, and take the limit back."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (256 * 1024**2, before[1]))
    try:
        bytearray(1024**3)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@marked("raises_much")
def raises_much(job: Job, *, characters: int) -> None:
    """Raise with a text of many megabytes."""
    raise ValueError("x" * characters)


@marked("raises_odd_text")
def raises_odd_text(job: Job) -> None:
    """Raise with what PostgreSQL and UTF-8 can't hold."""
    raise ValueError("bad\0byte \udce4")


@marked("returns_a_set")
def returns_a_set(job: Job) -> set[int]:
    """Return what JSON has no form for."""
    return {1}


@marked("returns_nul")
def returns_nul(job: Job) -> str:
    """Return what PostgreSQL can't hold."""
    return "x\0y"


@marked("returns_much")
def returns_much(job: Job) -> str:
    """Return more than may be kept."""
    return "x" * 2_000_000


@marked("returns_a_generator")
def returns_a_generator(job: Job) -> Any:
    """Return work that nobody has done."""
    return (number for number in range(3))


# ---- what they do to their transaction and connection


@marked("commits_by_hand")
def commits_by_hand(job: Job) -> None:
    """Call commit."""
    with job.transaction() as conn:
        insert_row(conn, job)
        conn.commit()


@marked("commits_by_sql")
def commits_by_sql(job: Job) -> None:
    """Send COMMIT, and go on."""
    with job.transaction() as conn:
        conn.execute("commit")
        insert_row(conn, job)


@marked("rolls_back_by_sql")
def rolls_back_by_sql(job: Job) -> None:
    """Send ROLLBACK, and leave the block."""
    with job.transaction() as conn:
        conn.execute("rollback")


@marked("begins_another")
def begins_another(job: Job) -> None:
    """Commit and begin in one message, so that a transaction is open again."""
    with job.transaction() as conn:
        conn.execute("commit; begin")
        insert_row(conn, job)


@marked("closes_its_connection")
def closes_its_connection(job: Job) -> None:
    """Call close, and return."""
    with job.transaction() as conn:
        conn.close()


@marked("keeps_its_connection")
def keeps_its_connection(job: Job) -> str:
    """Keep a connection beyond its transaction, and use it in a later one."""
    with job.transaction() as kept:
        insert_row(kept, job)
    with job.transaction() as conn:
        insert_row(conn, job)
        try:
            kept.execute("delete from test.rows")
        except Exception as error:  # noqa: BLE001
            return str(error)
    return "it works"


@marked("leaves_a_transaction_open")
def leaves_a_transaction_open(job: Job) -> None:
    """Enter a transaction, and return without leaving it."""
    conn = job.transaction().__enter__()
    insert_row(conn, job)


@marked("ends_its_backend")
def ends_its_backend(job: Job) -> None:
    """End its own session on the server."""
    with job.transaction() as conn:
        conn.execute("select pg_terminate_backend(pg_backend_pid())")


@marked("swallows_its_own_commit")
def swallows_its_own_commit(job: Job) -> None:
    """End the transaction, and swallow being told."""
    try:
        with job.transaction() as conn:
            conn.execute("commit")
    except Exception:  # noqa: BLE001
        pass


@marked("tries_to_begin_again")
def tries_to_begin_again(job: Job, *, go: str) -> int:
    """Try to begin a transaction until one begins, and return how often it did not."""
    refused = 0
    while True:
        try:
            with job.transaction() as conn:
                insert_row(conn, job)
        except psycopg.Error as error:
            refused += 1
            mark(job, f"refused: {error.sqlstate}")
            while not Path(go).exists():
                time.sleep(0.02)
        else:
            return refused


@marked("aborts_its_transaction")
def aborts_its_transaction(job: Job) -> None:
    """Swallow a statement's error, and leave the block as if nothing had been."""
    with job.transaction() as conn:
        try:
            conn.execute("select 1 / 0")
        except psycopg.Error:
            pass


# ---- what they leave in their process


@marked("leaves_a_thread")
def leaves_a_thread(job: Job) -> None:
    """Leave a thread that is no daemon."""
    threading.Thread(target=time.sleep, args=(600,)).start()


@marked("leaves_an_executor")
async def leaves_an_executor(job: Job) -> None:
    """Leave a busy thread of the loop's executor, and a task that does not want to end."""
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)
    concurrent.futures.ThreadPoolExecutor(1).submit(time.sleep, 600)


@marked("closes_descriptors")
def closes_descriptors(job: Job) -> None:
    """Close all descriptors that it did not open."""
    os.closerange(3, 65536)


@marked("loses_stdout")
def loses_stdout(job: Job) -> None:
    """Take away what would be flushed at the end."""
    os.close(1)
    sys.stdout = None  # type: ignore[assignment]


@marked("forks_and_both_return")
def forks_and_both_return(job: Job) -> dict[str, bool]:
    """Fork, and let both come back."""
    return {"is_copy": os.fork() == 0}


@marked("becomes_true")
def becomes_true(job: Job) -> None:
    """Become another program, that succeeds."""
    os.execv("/bin/true", ["true"])


@marked("signals_its_group")
def signals_its_group(job: Job) -> None:
    """Signal everyone it can."""
    os.kill(os.getppid(), signal.SIGUSR1)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.kill(0, signal.SIGTERM)
    os.killpg(os.getpgrp(), signal.SIGKILL)


# ---- how they hang


@marked("hangs_in_every_way")
def hangs_in_every_way(job: Job) -> None:
    """Hang on the server and in C, with programs in the group, out of it, and adopted by someone else."""
    mark(job, f"program {subprocess.Popen(['sleep', '600']).pid}")
    mark(job, f"program {subprocess.Popen(['sleep', '600'], start_new_session=True).pid}")
    mark(job, f"program {_daemon()}")
    threading.Thread(target=_sleep_on_the_server, args=(job,), daemon=True).start()
    time.sleep(0.3)
    mark(job, "all started")
    sum(itertools.repeat(1, 10**12))


def _daemon() -> int:
    """Start a program that no one here is the parent of any more."""
    shell = subprocess.run(
        ["sh", "-c", "setsid sleep 600 >/dev/null 2>&1 & echo $!"], stdout=subprocess.PIPE, check=True, text=True
    )
    return int(shell.stdout)


def _sleep_on_the_server(job: Job) -> None:
    with job.transaction() as conn:
        conn.execute("select pg_sleep(120)")


@marked("blocks_signals")
def blocks_signals(job: Job) -> None:
    """Block in C with every signal blocked."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    select.select([], [], [])


@marked("spins_in_python")
def spins_in_python(job: Job) -> None:
    """Take the signals for itself, and never stop."""
    for signum in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGALRM):
        signal.signal(signum, signal.SIG_IGN)
    while True:
        pass


@marked("dies_of_the_dump")
def dies_of_the_dump(job: Job) -> None:
    """End as a process does that crashes while its stacks are written."""
    signal.signal(signal.SIGUSR1, lambda *_: ctypes.string_at(0))
    while True:
        try:
            time.sleep(1)
        except BaseException:  # noqa: BLE001
            pass


@marked("sleeps_async")
async def sleeps_async(job: Job, *, seconds: float) -> None:
    """Sleep in a coroutine."""
    await asyncio.sleep(seconds)


@marked("returns_when_stopped")
def returns_when_stopped(job: Job) -> dict[str, str]:
    """Clean up, and return."""
    try:
        time.sleep(60)
    except Stopped as stopped:
        return {"reason": stopped.reason}
    return {}


@marked("holds_the_interpreter")
def holds_the_interpreter(job: Job, *, seconds: float) -> None:
    """Hold the interpreter's lock in C, in pieces of which each is long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(itertools.repeat(1, 10**8))


@marked("slow_until_fence")
def slow_until_fence(job: Job, *, fence: int) -> None:
    """Write a row, then sleep in one transaction, in all runs before the given one."""
    with job.transaction() as conn:
        insert_row(conn, job)
        row = conn.execute("select current_setting('fencepost_job.run')").fetchone()
        assert row is not None
        assert re.fullmatch(r"w\w+:\d+", row[0])
        with psycopg.connect(os.environ["DATABASE_URL"]) as own:
            runs = own.execute("select count(*) from test.marks where job = %s and note = 'start'", [job.id]).fetchone()
        if runs is not None and runs[0] < fence:
            time.sleep(30)


@marked("hangs_with_a_daemon")
def hangs_with_a_daemon(job: Job) -> None:
    """Leave a daemon that is nobody's child any more, and hang."""
    _daemon()
    sum(itertools.repeat(1, 10**12))


# ---- what they do while the database is away


@marked("sleeps_without_database")
def sleeps_without_database(job: Job, *, seconds: float) -> None:
    """Sleep, with nothing to do with the database after the start mark."""
    time.sleep(seconds)


@marked("ticks_in_a_file")
def ticks_in_a_file(job: Job, *, path: str) -> None:
    """Write the time down, ten times a second and for ever."""
    while True:
        with open(path, "a", encoding="ascii") as file:
            file.write(f"{time.time()}\n")
        time.sleep(0.1)


@marked("fails_when_told")
def fails_when_told(job: Job, *, path: str) -> None:
    """Raise once the file is there."""
    while not os.path.exists(path):
        time.sleep(0.02)
    raise ValueError("reason-123")


# ---- tenants


@handler("writes_quickly", transaction=True)
def writes_quickly(job: Job) -> None:
    """Write a business row, without a mark: for jobs by the thousand."""
    insert_row(job.conn, job)


@marked("counts_invoices")
def counts_invoices(job: Job, *, way: str) -> dict[str, Any]:
    """Count the tenant's invoices, and misbehave in the given way."""
    with job.transaction() as conn:
        before = _left_in_the_session(conn, job.tenant)
        row = conn.execute("select count(*), current_setting('app.tenant') from test.invoices").fetchone()
        assert row is not None
        assert row[1] == job.tenant
    # Underneath, where what an earlier job had set for the session would be there again.
    between = _left_in_the_session(job._transactions._session._job)  # type: ignore[attr-defined]  # no Session has it, ours does
    if way == "raises":
        raise ValueError("on purpose")
    if way == "dies":
        os._exit(1)
    if way == "sets_for_session":
        with job.transaction() as conn:
            conn.execute("select set_config('app.tenant', '1', false)")
    if way == "sets_role_and_temp":
        with job.transaction() as conn:
            conn.execute(
                "create temporary table invoices (tenant_id int); set search_path = pg_temp; select pg_advisory_lock(1)"
            )
    return {"before": before, "between": between, "count": row[0]}


def _left_in_the_session(conn: psycopg.Connection[Any], tenant: str | None = "") -> list[str]:
    """Return what earlier jobs have left in this one's session, where nobody's or this tenant is right."""
    found = conn.execute(
        """
        select 'tenant ' || current_setting('app.tenant', true) where current_setting('app.tenant', true) <> %s
        union all select 'search_path' where current_setting('search_path') = 'pg_temp'
        union all select 'temporary ' || relname from pg_class where relnamespace = pg_my_temp_schema()
        union all select 'lock' from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()
        """,
        [tenant],
    )
    return [row[0] for row in found]


@handler("tells_its_backend")
def tells_its_backend(job: Job) -> int:
    """Return the pid of its session's backend, asked often enough for psycopg to prepare the question."""
    with job.transaction() as conn:
        for _ in range(10):
            row = conn.execute("select pg_backend_pid()").fetchone()
    assert row is not None
    return int(row[0])


@marked("tenantless", tenantless=True)
def tenantless(job: Job) -> dict[str, Any]:
    """Run without a tenant."""
    return {"tenant": job.tenant}


# ---- what a second look at the races found


@marked("dies_with_a_family")
def dies_with_a_family(job: Job) -> None:
    """Leave a program and its child, out of the group; tell at the next attempt which of the earlier ones still live."""
    with psycopg.connect(os.environ["DATABASE_URL"]) as own:
        found = own.execute("select note from test.marks where job = %s and note like 'family%%'", [job.id]).fetchall()
    living = [pid for row in found for pid in row[0].split()[1:] if os.path.exists(f"/proc/{pid}")]
    mark(job, f"living: {living}")
    parent = subprocess.Popen(["sh", "-c", "sleep 987; :"], start_new_session=True)
    while not (children := Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()):
        time.sleep(0.01)
    mark(job, " ".join(["family", str(parent.pid), *children]))
    os._exit(1)


@marked("leaves_its_main_thread")
def leaves_its_main_thread(job: Job) -> None:
    """End the main thread alone, while other threads live on."""
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    ctypes.CDLL(None).syscall(60 if platform.machine() == "x86_64" else 93, 0)


@marked("leaves_an_alarm")
def leaves_an_alarm(job: Job) -> None:
    """Leave a timer whose signal raises, and every other signal blocked."""

    def ring(_signum: int, _frame: object) -> None:
        raise TimeoutError("the alarm of another job")

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.3)


@marked("blocks_signals_and_returns")
def blocks_signals_and_returns(job: Job) -> None:
    """Leave signals blocked, among them the one that asks to stop."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGTERM})


@handler("uses_a_thread")
async def uses_a_thread(job: Job) -> int:
    """Use the loop's executor, and wait for it."""
    return await asyncio.to_thread(os.getpid)


@handler("tells_its_process")
def tells_its_process(job: Job) -> int:
    """Return the pid of the worker."""
    return os.getpid()


@handler("logs_something")
def logs_something(job: Job) -> None:
    """Log as any library does."""
    logging.getLogger("a_library").warning("something %s", "happened")


@handler("tells_its_role")
def tells_its_role(job: Job) -> list[str]:
    """Return who it is in its transaction, and what the queue says to that; commit a row all the same."""
    with job.transaction() as conn:
        insert_row(conn, job)
        row = conn.execute("select current_user").fetchone()
        assert row is not None
        try:
            with conn.transaction():
                conn.execute("select from fencepost.jobs")
        except psycopg.errors.InsufficientPrivilege:
            return [row[0], "kept out"]
    return [row[0], "let in"]


@handler("writes_async")
async def writes_async(job: Job) -> str | None:
    """Write a row in a coroutine's transaction, and enqueue a follow-up in the same one."""
    async with job.transaction() as conn:
        await conn.execute("insert into test.rows (job, attempt) values (%s, %s)", (job.id, job.attempt))
        await aenqueue(conn, "quick", tenant=job.tenant)
    async with job.transaction() as conn:
        row = await (await conn.execute("select current_setting('app.tenant')")).fetchone()
    return None if row is None else str(row[0])


@handler("writes_once_async", transaction=True)
async def writes_once_async(job: Job, *, fail: bool = False) -> None:
    """Write a row in the coroutine's one transaction."""
    await job.conn.execute("insert into test.rows (job, attempt) values (%s, %s)", (job.id, job.attempt))
    if fail and job.attempt == 1:
        raise ValueError("on purpose")


@handler("commits_async")
async def commits_async(job: Job) -> None:
    """Send COMMIT from a coroutine."""
    async with job.transaction() as conn:
        await conn.execute("commit")
        await conn.execute("insert into test.rows (job, attempt) values (%s, %s)", (job.id, job.attempt))


@marked("signals_its_supervisor")
def signals_its_supervisor(job: Job, *, signals: list[int], a_second: float, seconds: float) -> int:
    """Send the supervisor so many signals a second, and return how many it were."""
    begun, sent = time.monotonic(), 0
    while (passed := time.monotonic() - begun) < seconds:
        if sent < passed * a_second:
            os.kill(os.getppid(), signals[sent % len(signals)])
            sent += 1
        else:
            time.sleep(0.001)
    return sent
