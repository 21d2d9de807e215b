"""A worker under something that starts it again, as an init system or a container's platform does."""

from __future__ import annotations

import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import psutil
from peer import Place
from peers.processes import send, start, tree

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
        return tree(self.main)

    def said(self) -> list[str]:
        """Return what it has written so far."""
        return self._output.read_text(encoding="utf-8", errors="replace").splitlines()

    def end(self) -> None:
        """End it, and whatever any of its main processes has left."""
        self._ending.set()
        self._keeper.join()
        for main in self._mains:
            for process in tree(main):
                send(process, signal.SIGKILL)
            main.wait()

    def _start(self) -> None:
        command = self._place.peer.command(self._place.peer.worker, self._place.database)
        self._mains.append(start(command, self._place.folder, self._place.environment, self._output))

    def _keep(self) -> None:
        while not self._ending.wait(0.05):
            if self.main.poll() is not None:
                self.exits.append(time.time())
                if self._ending.wait(PAUSE):
                    return
                self._start()
