"""Signals as something to read (signalfd(2)): they interrupt nothing, and wait in the kernel until the loop has time.

A handler would run for each, before anything else of ours: two processes that send as fast as they can then leave no time
for a single line of Python, and the supervisor stalls. What is read instead waits, all of one number as one.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable

_INFO = 128
"""Bytes of a `struct signalfd_siginfo`, which begins with the signal's number."""

_SET = 128
"""Bytes of a `sigset_t`, in glibc and in musl."""

_AT_ONCE = 64


class SignalFile:
    """The signals of some numbers, which this process has blocked. Raises OSError where the kernel gives no such file."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = -1
        self._fd = self._set(numbers)

    def fileno(self) -> int:
        """Return its descriptor, which is readable while there is a signal."""
        return self._fd

    def only(self, numbers: Iterable[int]) -> None:
        """Read these from now on; others stay with the kernel."""
        self._set(numbers)

    def read(self) -> list[int]:
        """Return which have come, each once."""
        try:
            found = os.read(self._fd, _AT_ONCE * _INFO)
        except BlockingIOError:
            return []
        numbers = (int.from_bytes(found[at : at + 4], sys.byteorder) for at in range(0, len(found), _INFO))
        return list(dict.fromkeys(numbers))

    def _set(self, numbers: Iterable[int]) -> int:
        wanted = ctypes.create_string_buffer(_SET)
        self._libc.sigemptyset(wanted)
        for number in numbers:
            self._libc.sigaddset(wanted, int(number))
        if (fd := self._libc.signalfd(self._fd, wanted, os.O_NONBLOCK | os.O_CLOEXEC)) < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return int(fd)
