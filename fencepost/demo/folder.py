"""The one place on the disk where the demo leaves anything, and that goes with it.

Invariant: the folder is gone when the demo is, even if that was killed: then a watcher, known to nobody, removes it.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "fencepost-demo-"

LONGEST = 90
"""Bytes: a socket's path may have 107, and its own name is 15 of them."""

WATCH = 'read line || { sleep 2; rm -rf -- "$1"; }'
"""A line means all is well. The pipe's end without one means that it is dead; in two seconds so is all that it ran."""


@contextmanager
def temporary_folder(prefix: str = PREFIX) -> Iterator[Path]:
    """Make a folder that only its owner may enter, and remove it at the end. Nothing may run in it any more by then."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    if len(str(folder).encode()) > LONGEST or not _others_may_go_there(folder):
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
    try:
        watcher = _watcher(folder)
    except OSError:
        folder.rmdir()
        raise
    with watcher:
        try:
            yield folder
        finally:
            # Where this fails it is the watcher's: without a line it tries again, and leaving the block waits for it.
            shutil.rmtree(folder)
            watcher.communicate(b"\n")


def _others_may_go_there(folder: Path) -> bool:
    """Return whether the way to the folder is open to the user that the server runs as, where that is not ourselves."""
    return os.geteuid() != 0 or all(parent.stat().st_mode & stat.S_IXOTH for parent in folder.resolve().parents)


def _watcher(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603  # nothing of it comes from outside
        ["/bin/sh", "-c", WATCH, "sh", folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
