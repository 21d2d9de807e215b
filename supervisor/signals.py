"""What signals do. A handler only notes; the loop does whatever can fail, block or log."""

from __future__ import annotations

import asyncio
import signal

import structlog

from fencepost.board import boottime
from fencepost.supervisor import drain
from fencepost.supervisor.deaths import signal_name
from fencepost.supervisor.reap import reap
from fencepost.supervisor.state import State

log = structlog.get_logger()

DUPLICATES_WITHIN = 1.0
"""Seconds in which further signals to stop are taken as the same one: several senders, or one that is in a hurry."""

TAKEN = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGCHLD}

FAULTS = {
    signal.SIGKILL,
    signal.SIGSTOP,
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGABRT,
    signal.SIGTRAP,
    signal.SIGSYS,
}
"""Can't be taken, or tell of a fault of our own."""

HARMLESS = {signal.SIGCONT, signal.SIGURG, signal.SIGWINCH, signal.SIGPIPE, signal.SIGXFSZ}

WITHOUT_EFFECT = {signal.Signals(number) if number < signal.SIGRTMIN else number for number in signal.valid_signals()} - (
    TAKEN | FAULTS | HARMLESS
)
"""Each would end or stop this process by default, and anyone in the container, a job too, can send it."""


def take_signals(state: State) -> None:
    """Handle signals from here on."""
    loop = asyncio.get_running_loop()
    last = [float("-inf")]

    def terminate(name: str) -> None:
        now = boottime()
        if now - last[0] < DUPLICATES_WITHIN and state.draining:
            return
        last[0] = now
        drain.begin(state, min(3, state.drain_step + 1), name)

    loop.add_signal_handler(signal.SIGTERM, terminate, "SIGTERM")
    loop.add_signal_handler(signal.SIGINT, terminate, "SIGINT")
    loop.add_signal_handler(signal.SIGQUIT, lambda: drain.begin(state, 3, "SIGQUIT"))
    # Set even where it was ignored before us: with SIGCHLD ignored the kernel would throw away how children ended.
    loop.add_signal_handler(signal.SIGCHLD, reap, state)
    for number in WITHOUT_EFFECT:
        loop.add_signal_handler(number, lambda name: log.info("a signal without effect", signal=name), signal_name(number))
