"""A moment at which the kernel kills this process, unless it is put off before.

For a process that may stall, and so can't be trusted to end itself: stopped by a signal, swapped out, hanging in C. The timer
is the kernel's (timer_create(2)), SIGKILL can't be held off, and a stopped process is killed by it too. It counts
CLOCK_BOOTTIME, as all deadlines do. It is not inherited by fork(), and gone with exec(). On PID 1 it has no effect: the kernel
keeps SIGKILL from the first process of a namespace.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time

_ABSOLUTE = 1


class _Event(ctypes.Structure):
    """`struct sigevent`: which signal, sent to the process (SIGEV_SIGNAL is 0). 64 bytes on all of Linux."""

    _fields_ = (("value", ctypes.c_void_p), ("signal", ctypes.c_int), ("notify", ctypes.c_int), ("rest", ctypes.c_byte * 48))


class _Moment(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Timer(ctypes.Structure):
    """`struct itimerspec`: an interval, which is none here, and the moment."""

    _fields_ = (("interval", _Moment), ("moment", _Moment))


class Deadline:
    """One timer of this process. Raises OSError where the kernel gives none: it has a limit, and a sandbox may forbid it."""

    def __init__(self) -> None:
        self._libc = _library()
        self._id = ctypes.c_void_p()
        # Made once: it is set twice for each job.
        self._timer = _Timer()
        self._to_timer = ctypes.byref(self._timer)
        event = _Event(None, signal.SIGKILL, 0)
        if self._libc.timer_create(time.CLOCK_BOOTTIME, ctypes.byref(event), ctypes.byref(self._id)) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def at(self, moment: float) -> None:
        """Be killed at `moment`, in seconds of CLOCK_BOOTTIME, and not at the one that was set before. In the past: at once."""
        whole, fraction = divmod(max(moment, 1e-9), 1)
        self._set(int(whole), max(1, int(fraction * 1e9)))

    def off(self) -> None:
        """Be killed at no moment."""
        self._set(0, 0)

    def _set(self, seconds: int, nanoseconds: int) -> None:
        self._timer.moment.seconds, self._timer.moment.nanoseconds = seconds, nanoseconds
        self._libc.timer_settime(self._id, _ABSOLUTE, self._to_timer, None)


def _library() -> ctypes.CDLL:
    """Return the library with the timers: the C library itself, whatever was loaded in front of it; if it is old, librt."""
    for name in ("libc.so.6", None, "librt.so.1"):
        try:
            library = ctypes.CDLL(name, use_errno=True)
        except OSError:
            continue  # another C library than glibc
        if hasattr(library, "timer_create"):
            return library
    raise OSError("no library has timer_create")
