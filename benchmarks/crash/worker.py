"""A worker under something that starts it again, as an init system or a container's platform does."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import psutil
from peer import Place

PAUSE = 1.0
"""Seconds from an end to the next start."""


class Worker:
    """One worker: its main process, and all that this started."""

    def __init__(self, place: Place) -> None:
        self.exits: list[float] = []
        self._place = place
        self._output = Path(tempfile.mkstemp(prefix="output-", dir=place.folder)[1])
        self._ending = threading.Event()
        self._mains: list[subprocess.Popen[bytes]] = []
        self._start()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    @property
    def main(self) -> subprocess.Popen[bytes]:
        """The main process that was started last."""
        return self._mains[-1]

    def tree(self) -> list[psutil.Process]:
        """Find all processes of the main process that runs now, itself first."""
        return _tree(self.main)

    def said(self) -> list[str]:
        """Return what it has written so far."""
        return self._output.read_text(encoding="utf-8", errors="replace").splitlines()

    def end(self) -> None:
        """End it, and whatever any of its main processes has left."""
        self._ending.set()
        self._keeper.join()
        for main in self._mains:
            for process in _tree(main):
                send(process, signal.SIGKILL)
            main.wait()

    def _start(self) -> None:
        with self._output.open("ab") as output:
            self._mains.append(
                subprocess.Popen(
                    self._place.peer.command(self._place.peer.worker, self._place.database),
                    cwd=self._place.folder,
                    env=self._place.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            )

    def _keep(self) -> None:
        while not self._ending.wait(0.05):
            if self.main.poll() is not None:
                self.exits.append(time.time())
                if self._ending.wait(PAUSE):
                    return
                self._start()


def send(process: psutil.Process, number: int) -> None:
    """Send a signal to a process that may be gone."""
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        pass


def lives(process: psutil.Process) -> bool:
    """Return whether a process still runs, if only to be frozen."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _tree(main: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Find it by descent, while that can be seen, and by the session, which outlives the main process."""
    found = {}
    if main.poll() is None:
        top = psutil.Process(main.pid)
        found = {process.pid: process for process in [top, *top.children(recursive=True)]}
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == main.pid:
                found.setdefault(process.pid, process)
        except ProcessLookupError:
            continue
    return list(found.values())
