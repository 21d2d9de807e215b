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
