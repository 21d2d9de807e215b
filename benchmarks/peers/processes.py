"""A worker's processes: its main one, and all that this started."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import psutil


def start(command: list[str], folder: Path, environment: Mapping[str, str], output: Path) -> subprocess.Popen[bytes]:
    """Start a main process in a session of its own, by which what outlives it is found."""
    with output.open("ab") as file:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


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


def tree(main: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return all processes of a main process, itself first: by descent, while that can be seen, and by the session."""
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
