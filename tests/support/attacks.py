"""What a job can do to its supervisor and to the other workers, each attack a line or a few. `attack` runs some at random."""

from __future__ import annotations

import ctypes
import fcntl
import gc
import os
import random
import resource
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fencepost import Job, handler
from fencepost.board import Board, Phase, Record, boottime

ATTACKS: dict[str, Callable[[random.Random], object]] = {}
NAMES = "USR1 USR2 HUP ALRM VTALRM PROF IO PIPE XFSZ XCPU URG WINCH CHLD CONT PWR STKFLT RTMIN RTMAX"
TO_THE_SUPERVISOR = tuple(signal.Signals[f"SIG{name}"] for name in NAMES.split())
"""Those that are not obeyed by leaving or claiming no more, and that are no fault of the supervisor's own."""


def attacks(function: Callable[[random.Random], object]) -> Callable[[random.Random], object]:
    """Register an attack by its name."""
    ATTACKS[function.__name__] = function
    return function


@handler("innocent", max_attempts=1)
def innocent(_job: Job, *, until: str) -> None:
    """Run beside the attacks, until a file is there."""
    while not Path(until).exists():
        time.sleep(0.05)


@handler("signals_a_worker", max_attempts=1)
def signals_a_worker(_job: Job, *, pid: int, number: int) -> None:
    """Signal another worker, as its name is known."""
    os.kill(pid, number)


@handler("attacks", max_attempts=1)
def attack(job: Job, *, name: str, seed: int) -> None:
    """Attack; then go on for a moment, and end as it comes."""
    ATTACKS[name](random.Random(seed))
    time.sleep(0.2)


def board() -> Board:
    """Return its own: what was there at the fork is out of the collector's sight."""
    gc.unfreeze()
    return next(one for one in gc.get_objects() if isinstance(one, Board))


def line() -> socket.socket:
    gc.unfreeze()
    return next(
        one for one in gc.get_objects() if type(one) is socket.socket and one.fileno() >= 0 and one.family == socket.AF_UNIX
    )


# ---- the board


@attacks
def scribbles(chance: random.Random) -> None:
    """Put random bytes anywhere on its page."""
    own = board()
    for _ in range(300):
        at = chance.randrange(4000)
        own._memory[at : at + 64] = chance.randbytes(64)


@attacks
def lies(chance: random.Random) -> None:
    """Write whole records that say what is not so."""
    numbers = (0, 1, 2**31 - 1, 2**32 - 1)
    times = (0.0, -1e300, 1e300, 5e-324, boottime(), boottime() + 1e6)
    own = board()
    for _ in range(100):
        own.write(
            Record(
                phase=chance.choice(list(Phase)),
                claim=chance.choice((0, 1, 2**64 - 1)),
                job_id=chance.choice((-(2**63), 0, 1, 2, 2**63 - 1)),
                fence=chance.choice((-(2**63), 0, 1, 2**63 - 1)),
                attempt=chance.choice(numbers),
                max_attempts=chance.choice(numbers),
                claimed_at=chance.choice(times),
                max_runtime=chance.choice(times),
                retry_in=chance.choice(times),
                progress=(chance.choice((float("nan"), float("inf"), 1e308)), chance.choice(times)),
                kind=chance.choice(("\0", "\ud800", "x" * 99, "{}", "")),
                tenant="\x1b[2J",
            )
        )
        time.sleep(0.005)


@attacks
def is_in_no_phase(_chance: random.Random) -> None:
    """Make its record unreadable for good."""
    own = board()
    for _ in range(300):
        own._memory[:300] = b"\xff" * 300
        time.sleep(0.01)


# ---- the line


@attacks
def floods_its_line(chance: random.Random) -> None:
    """Write as much as goes, and an open file with it."""
    own = line()
    with suppress(OSError):
        socket.send_fds(own, [b"x"], [0])
        for _ in range(1000):
            own.send(chance.randbytes(4096), socket.MSG_DONTWAIT)


@attacks
def half_closes_its_line(chance: random.Random) -> None:
    """Close one direction, or both."""
    line().shutdown(chance.choice((socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR)))


# ---- signals, and ways to die


@attacks
def signals_the_supervisor(chance: random.Random) -> None:
    """Send it a thousand signals."""
    for _ in range(1000):
        os.kill(os.getppid(), chance.choice(TO_THE_SUPERVISOR))


@attacks
def exits(chance: random.Random) -> None:
    """Leave with any status."""
    os._exit(chance.randrange(256))


@attacks
def dies(chance: random.Random) -> None:
    """Die of any signal."""
    number = chance.choice(sorted(signal.valid_signals()))
    with suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


@attacks
def kills_its_group(chance: random.Random) -> None:
    """Signal all that it takes for its own."""
    os.killpg(0, chance.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV)))


@attacks
def stops_itself(_chance: random.Random) -> None:
    """Be asked, and not hear it."""
    os.kill(os.getpid(), signal.SIGSTOP)


# ---- descriptors and shared descriptions


@attacks
def takes_all_descriptors(_chance: random.Random) -> None:
    """Open until nothing is left."""
    with suppress(OSError):
        while True:
            os.open("/dev/null", os.O_RDONLY)


@attacks
def closes_and_replaces_descriptors(chance: random.Random) -> None:
    """Close some, and put others in their place."""
    for number in range(3, 40):
        with suppress(OSError):
            if chance.random() < 0.5:
                os.close(number)
            else:
                os.dup2(0, number)


@attacks
def changes_stderr_for_all(chance: random.Random) -> None:
    """Set every flag of the description of stderr that the supervisor writes to, and have its owner signalled."""
    fcntl.fcntl(2, fcntl.F_SETOWN, os.getppid())
    fcntl.fcntl(2, fcntl.F_SETFL, chance.choice((os.O_NONBLOCK, os.O_NONBLOCK | os.O_ASYNC, os.O_ASYNC)))
    fcntl.flock(2, fcntl.LOCK_EX)
    with suppress(OSError):
        fcntl.lockf(2, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with suppress(OSError):
        os.lseek(2, chance.choice((0, 1 << 20)), os.SEEK_SET)


@attacks
def fills_its_files(chance: random.Random) -> None:
    """Fill the note and the stacks, which the supervisor reads."""
    for number in range(3, 20):
        with suppress(OSError):
            if "memfd:" in os.readlink(f"/proc/self/fd/{number}"):
                os.write(number, chance.randbytes(1 << 20))
                os.ftruncate(number, 1 << 40)


@attacks
def writes_much(chance: random.Random) -> None:
    """Write megabytes to stdout and stderr, without an end of line."""
    for number in (1, 2):
        with suppress(OSError):
            os.write(number, chance.randbytes(2 << 20))


# ---- processes and limits


@attacks
def forks_many(_chance: random.Random) -> None:
    """A hundred and fifty, each in a group or a session of its own, that would stay."""
    for number in range(150):
        if os.fork() == 0:
            (os.setsid if number % 2 else os.setpgrp)()
            time.sleep(60)
            os._exit(0)


@attacks
def changes_groups(_chance: random.Random) -> None:
    """Go into the group of a child of its own."""
    child = os.fork()
    if child == 0:
        os.setpgrp()
        time.sleep(60)
        os._exit(0)
    with suppress(OSError):
        os.setpgid(child, child)
        os.setpgid(0, child)
    os.kill(child, signal.SIGKILL)


@attacks
def takes_all_memory(_chance: random.Random) -> None:
    """Up to its limit, in C too."""
    resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))
    with suppress(MemoryError):
        kept = [bytearray(1 << 20) for _ in range(1000)]
        del kept
    ctypes.string_at(0)


@attacks
def changes_where_it_is(_chance: random.Random) -> None:
    """Its folder, its mask, its niceness."""
    os.chdir("/")
    os.umask(0o777)
    os.nice(19)


@attacks
def fills_its_folder(chance: random.Random) -> None:
    """Write into the folder that all share, and take it away again."""
    files = [Path(f"left-{chance.randrange(1 << 30)}") for _ in range(200)]
    for file in files:
        file.write_bytes(b"x" * 4096)
    for file in files:
        os.truncate(file, 0)
        file.unlink()


@attacks
def takes_its_folder_away(_chance: random.Random) -> None:
    """Remove the folder that all are in."""
    with suppress(OSError):
        folder = Path.cwd()
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


# ---- the supervisor and the other workers, as processes of the same user


@attacks
def lowers_limits(chance: random.Random) -> None:
    """Leave the supervisor no descriptor, no file, no memory, no process, no signal."""
    for name in ("NOFILE", "FSIZE", "AS", "NPROC", "SIGPENDING"):
        limit = getattr(resource, f"RLIMIT_{name}")
        with suppress(OSError, ValueError):
            _, hard = resource.prlimit(os.getppid(), limit)
            resource.prlimit(os.getppid(), limit, (chance.choice((0, 5)), hard))


@attacks
def has_it_scheduled_late(chance: random.Random) -> None:
    """Leave the supervisor one CPU, no interactive turns, and the first place for the OOM killer."""
    with suppress(OSError):
        os.sched_setaffinity(os.getppid(), {chance.choice(sorted(os.sched_getaffinity(0)))})
        os.sched_setscheduler(os.getppid(), os.SCHED_BATCH, os.sched_param(0))
        Path(f"/proc/{os.getppid()}/oom_score_adj").write_text("1000", encoding="ascii")


@attacks
def traces_the_supervisor(chance: random.Random) -> None:
    """Hold it up as a debugger does, or be gone while it is held up.

    By a program of the job's, that no other attack stops: who is held up for as long as that is ended by its timer.
    """
    seize, interrupt, detach, any_child = 0x4206, 0x4207, 17, 0x40000000
    supervisor = os.getppid()
    if debugger := os.fork():
        os.waitpid(debugger, 0)
        return
    libc = ctypes.CDLL(None)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(seize, supervisor, None, None) == 0:
        libc.ptrace(interrupt, supervisor, None, None)
        os.waitpid(supervisor, any_child)
        time.sleep(0.1)
        if chance.random() < 0.5:
            libc.ptrace(detach, supervisor, None, None)
    os._exit(0)


@attacks
def opens_what_is_the_supervisors(chance: random.Random) -> None:
    """Open its files by /proc, write into those of its workers, lock all; and read its memory."""
    for file in Path(f"/proc/{os.getppid()}/fd").iterdir():
        with suppress(OSError):
            is_memory = "memfd:" in str(file.readlink())
            opened = os.open(file, os.O_RDWR | os.O_NONBLOCK)
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_memory:
                os.pwrite(opened, chance.randbytes(1 << 16), 0)
                os.ftruncate(opened, 1 << 40)
    with suppress(OSError):
        os.open(f"/proc/{os.getppid()}/mem", os.O_RDWR)


@attacks
def signals_other_workers(chance: random.Random) -> None:
    """Signal all of its siblings that attack, too."""
    for pid in map(int, Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_text(encoding="ascii").split()):
        with suppress(OSError):
            if pid != os.getpid() and b" attacks" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, chance.choice((signal.SIGUSR1, signal.SIGUSR2, signal.SIGSEGV, signal.SIGTERM, signal.SIGSTOP)))
