"""PID 1 of a container: it stands in front of the supervisor, passes signals on, reaps, and leaves with it.

The kernel keeps SIGKILL from a namespace's first process, and with it the timer that ends a supervisor which stalls (protocol,
rule 13). So the supervisor is never that process. As PID 1 `fencepost run` forks before it is anything, and the parent does
only what stands here. It waits for a signal, and does nothing else: nothing in it can stall.

When it leaves, the kernel ends all that is left in the container: also programs that the jobs of a killed supervisor had
started.
"""

from __future__ import annotations

import os
import signal
from typing import NoReturn

from setproctitle import setproctitle

from fencepost.settings import Settings

KILLED = 128
"""Added to the number of the signal that ended the supervisor: how shells and containers tell it."""

NOT_PASSED_ON = {signal.SIGCHLD, signal.SIGPIPE, signal.SIGTTOU}
"""Meant for this process, or brought about by itself. TTOU comes from writing to a terminal, too; one sent by hand is lost."""

FAULTS = {signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP}


def stand_in_front(settings: Settings) -> None:
    """As PID 1, fork: return in the child, which becomes the supervisor, and never in the parent. Otherwise just return."""
    if os.getpid() != 1:
        return
    # From before the fork on: a signal that comes early is kept, and passed on.
    taken = signal.valid_signals() - FAULTS
    signal.pthread_sigmask(signal.SIG_BLOCK, taken)
    supervisor = os.fork()
    if supervisor == 0:
        # In a group of its own: what is sent to ours, by a terminal say, comes to it once, from us. Signals stay blocked until
        # it has handlers for them (`hold_signals`).
        os.setpgid(0, 0)
        return
    _watch(supervisor, taken, settings)


def _watch(supervisor: int, taken: set[signal.Signals], settings: Settings) -> NoReturn:
    code = KILLED + signal.SIGKILL
    try:
        setproctitle("fencepost: init")
        status = _until_it_ends(supervisor, taken)
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            code = KILLED - code
            _tell(status, settings)
    finally:
        os._exit(code)


def _until_it_ends(supervisor: int, taken: set[signal.Signals]) -> int:
    """Pass signals on, and reap whoever has come to us, until the supervisor has ended; return its wait status."""
    while True:
        # Before waiting: deaths before the first wait, and several in one signal, are all found.
        while (dead := os.waitpid(-1, os.WNOHANG))[0] != 0:
            if dead[0] == supervisor:
                return dead[1]
        number = signal.sigwait(taken)
        if number not in NOT_PASSED_ON:
            # Not a stranger's number: only we reap it.
            os.kill(supervisor, number)


def _tell(status: int, settings: Settings) -> None:
    import structlog  # noqa: PLC0415  # as long as the supervisor lives there is nothing to say

    from fencepost import logs  # noqa: PLC0415
    from fencepost.supervisor.deaths import death_of  # noqa: PLC0415

    logs.configure(settings)
    structlog.get_logger().error(
        "the supervisor has died: the container ends, with all that its jobs have left running",
        death=str(death_of(status, 0)),
        hint="if nobody killed it, it stalled for longer than its leases allow, or the container's memory ran out",
    )
