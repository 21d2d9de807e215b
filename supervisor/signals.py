"""What signals do. They are read, and interrupt nothing; the loop does whatever can fail, block or log."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import Callable
from functools import partial

import structlog

from fencepost.board import boottime
from fencepost.logs import sink
from fencepost.supervisor import drain
from fencepost.supervisor.deaths import signal_name
from fencepost.supervisor.reap import reap
from fencepost.supervisor.signalfile import SignalFile
from fencepost.supervisor.slots import go_on, one_fewer, one_more, pause, replace_all
from fencepost.supervisor.state import State
from fencepost.supervisor.tell import tell_all

log = structlog.get_logger()

DUPLICATES_WITHIN = 1.0
"""Seconds in which further signals to stop are taken as the same one: several senders, or one that is in a hurry."""

TOLD_AGAIN_AFTER = 10.0
"""Seconds in which a signal without effect is told of once."""

AT_ONCE, OFTEN_WITHIN = 60, 10.0
"""How often a signal is acted on at once, in as many seconds: no operator sends more, and no flood gets further."""

TAKEN = {
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGCHLD,
    signal.SIGUSR1,
    signal.SIGHUP,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGTSTP,
    signal.SIGCONT,
}

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

HARMLESS = {signal.SIGURG, signal.SIGWINCH, signal.SIGPIPE, signal.SIGXFSZ}

WITHOUT_EFFECT = {signal.Signals(number) if number < signal.SIGRTMIN else number for number in signal.valid_signals()} - (
    TAKEN | FAULTS | HARMLESS
)
"""Each would end or stop this process by default, and anyone in the container, a job too, can send it."""

TO_LEAVE = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT}


def hold_signals() -> list[int]:
    """Keep what comes from here to `take_signals`, in the list that is returned: none is lost, or ends us by default.

    Kept by a handler and not by blocking, which programs that an import starts would inherit. Those to leave are obeyed at
    once: nothing runs yet, and as PID 1 they would be ignored.
    """
    held: list[int] = []
    for number in (TAKEN | WITHOUT_EFFECT) - {signal.SIGCHLD}:
        signal.signal(number, _leave if number in TO_LEAVE else lambda number, _frame: held.append(number))
    # As PID 1's child it was forked with all of them blocked, and what came meanwhile comes now.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return held


def _leave(number: int, _frame: object) -> None:
    log.info("left before a worker was started", why=signal_name(number))
    sink.flush()
    os._exit(0)


def take_signals(state: State, held: list[int]) -> None:
    """Act on signals from here on, on those that were held first. What imports have done to signals and timers is undone."""
    # One that comes between two ways of taking it would be taken by neither.
    signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN | WITHOUT_EFFECT)
    for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
        signal.setitimer(timer, 0)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_IGN)
    # Set even where it was ignored before us: with SIGCHLD ignored the kernel would throw away how children ended.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    acts = _acts(state)
    try:
        arrivals = _Arrivals(acts)
    except OSError:
        # Forbidden by a seccomp filter: handlers do as well, but for who sends them as fast as he can.
        for number, act in acts.items():
            asyncio.get_running_loop().add_signal_handler(number, act)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
    else:
        asyncio.get_running_loop().add_reader(arrivals.file.fileno(), arrivals.take)
    for came in held:
        os.kill(os.getpid(), came)


class _Arrivals:
    """Signals that have come, each number acted on at once, but not without end: a job can send any of them for ever.

    A number that was acted on is left with the kernel for an instant, and for a second each time once it has come
    `AT_ONCE` times in ten. What comes meanwhile is acted on then, as one: none is lost, and no flood fills the log.
    """

    def __init__(self, acts: dict[int, Callable[[], None]]) -> None:
        self.file = SignalFile(acts)
        self._acts = acts
        self._left: set[int] = set()
        self._acted_at: dict[int, deque[float]] = {number: deque(maxlen=AT_ONCE) for number in acts}

    def take(self) -> None:
        """Act on what has come."""
        loop = asyncio.get_running_loop()
        for number in self.file.read():
            # By the loop, so that an error of one holds up no other.
            loop.call_soon(self._acts[number])
            loop.call_later(self._rest(number), self._again, number)
            self._left.add(number)
            if number in WITHOUT_EFFECT:
                # Told of. Thrown away by the kernel meanwhile, those that it would queue too: their number has a limit, which
                # the timers of workers count against.
                signal.signal(number, signal.SIG_IGN)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        self._read()

    def _rest(self, number: int) -> float:
        if number in WITHOUT_EFFECT:
            return TOLD_AGAIN_AFTER
        now, times = boottime(), self._acted_at[number]
        often = len(times) == AT_ONCE and now - times[0] < OFTEN_WITHIN
        times.append(now)
        # A death is never told late, and costs no line but its own.
        return 1.0 if often and number != signal.SIGCHLD else 0.02

    def _again(self, number: int) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {number})
        self._left.discard(number)
        self._read()

    def _read(self) -> None:
        self.file.only(self._acts.keys() - self._left)


def _acts(state: State) -> dict[int, Callable[[], None]]:
    """Return what each signal does."""
    last = [float("-inf")]
    told: dict[str, float] = {}

    def terminate(name: str) -> None:
        now = boottime()
        if now - last[0] < DUPLICATES_WITHIN and state.draining:
            return
        last[0] = now
        drain.begin(state, min(3, state.drain_step + 1), name)

    return {
        signal.SIGTERM: lambda: terminate("SIGTERM"),
        signal.SIGINT: lambda: terminate("SIGINT"),
        signal.SIGQUIT: lambda: drain.begin(state, 3, "SIGQUIT"),
        signal.SIGCHLD: lambda: reap(state),
        signal.SIGUSR1: lambda: state.spawn(tell_all(state)),
        **{number: partial(_unless_draining, state, number, act) for number, act in UNLESS_DRAINING.items()},
        **{number: partial(_tell_once, signal_name(number), told) for number in WITHOUT_EFFECT},
    }


def _tell_once(name: str, told: dict[str, float]) -> None:
    """Tell of a signal without effect, but not of each: a job can send them by the thousand.

    And a job that sets O_ASYNC on the stderr that it shares with us has each line answered with a signal: it would never end.
    """
    now = boottime()
    if now - told.get(name, float("-inf")) >= TOLD_AGAIN_AFTER:
        told[name] = now
        log.info("a signal without effect", signal=name)


def _unless_draining(state: State, number: signal.Signals, act: Callable[[State], None]) -> None:
    if state.draining:
        log.info("draining: the signal is without effect", signal=number.name)
    else:
        act(state)


UNLESS_DRAINING = {
    signal.SIGHUP: replace_all,
    signal.SIGTTIN: one_more,
    signal.SIGTTOU: one_fewer,
    signal.SIGTSTP: pause,
    signal.SIGCONT: go_on,
}
