"""What keeps a process from being forked."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

CASES = {
    "": None,
    "opened = [open('/dev/null'), open('/etc/passwd')]": None,
    "opened = os.pipe()": "pipe:[",
    "opened = select.epoll()": "anon_inode:[eventpoll]",
    "opened = socket.socketpair()": "socket:[",
    "threading.Thread(target=threading.Event().wait, name='of-a-library', daemon=True).start()": "of-a-library",
}

RUNNER = """
import json, os, select, socket, sys, threading
from fencepost.forkable import cannot_be_forked, descriptors
before = descriptors()
exec(sys.argv[1])
print(json.dumps(cannot_be_forked(descriptors() - before)))
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.parametrize("code", CASES)
def test_what_workers_can_not_share_is_named_with_a_cure(code: str) -> None:
    """F4: files can be shared, and all else that was opened can't."""
    done = subprocess.run([sys.executable, "-c", RUNNER, code], capture_output=True, text=True, check=True)
    refused = json.loads(done.stdout)
    if CASES[code] is None:
        assert refused is None
    else:
        what, cure = refused
        assert CASES[code] in what
        assert "FENCEPOST_PRELOAD=no" in cure
