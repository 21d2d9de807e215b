"""Write where this process' threads are, when the supervisor asks: in Python, or from C if Python gets no turn.

See fencepost/supervisor/stacks.py for why there are two ways.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # as in stop.py
import faulthandler
import os
import signal
import sys
import threading
from types import FrameType

FROM_PYTHON = signal.SIGUSR1
FROM_C = signal.SIGQUIT

DEEPEST = 100
"""Frames of a stack that are told; faulthandler tells as many."""


class Stacks:
    """Writes to `fd`, which the supervisor reads, when the signals come and when this process crashes."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._file = os.fstat(fd)

    def install(self) -> None:
        """Take the signals. Imports and jobs may have taken them, so this is done before each job."""
        faulthandler.enable(file=self._fd, all_threads=True)
        faulthandler.register(FROM_C, file=self._fd, all_threads=True, chain=False)
        # One that a job has left would end the process in another's.
        faulthandler.cancel_dump_traceback_later()
        _signal.signal(FROM_PYTHON, self._write)

    def _write(self, _signum: int, frame: FrameType | None) -> None:
        # In the middle of whatever runs here: nothing that goes wrong must be raised there, nor go into a stranger's file.
        try:
            if os.path.samestat(self._file, os.fstat(self._fd)):
                os.write(self._fd, stacks(frame).encode(errors="replace"))
        except Exception:  # noqa: BLE001, S110  # the supervisor sees that there is no answer
            pass


def stacks(of_main: FrameType | None) -> str:
    """Return the stacks of all threads, as faulthandler writes them: the main thread's first, from the frame `of_main` on."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    told = []
    for thread, frame in sorted(sys._current_frames().items(), key=lambda item: item[0] != main):
        lines = [f"Thread {names.get(thread, thread)} (most recent call first):"]
        step = of_main if thread == main else frame
        while step is not None and len(lines) <= DEEPEST:
            lines.append(f'  File "{step.f_code.co_filename}", line {step.f_lineno} in {step.f_code.co_name}')
            step = step.f_back
        told.append("\n".join(lines) + "\n")
    return "\n".join(told) + "\n"
