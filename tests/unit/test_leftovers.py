"""What a job leaves behind in its process.

Each case runs in a process of its own: looking also reaps what has ended, and that must not be the test run's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from textwrap import dedent

import pytest

RUNNER = """
import json, os, subprocess, sys, tempfile, threading, time
from fencepost.worker.leftovers import footprint, left_behind

for name, code in json.load(sys.stdin).items():
    if os.fork() == 0:
        own, other, started = tempfile.TemporaryFile(), tempfile.TemporaryFile(), threading.Event()
        before = footprint((own.fileno(), other.fileno()))
        exec(code)
        found = left_behind(before, footprint((own.fileno(), other.fileno())))
        if "p" in globals():
            p.kill()
        print(json.dumps([name, found]), flush=True)
        os._exit(0)
    os.wait()
"""

CASES = {
    "nothing": ("", []),
    "a thread that has ended": ("t = threading.Thread(target=int); t.start(); t.join()", []),
    "a thread": (
        "threading.Thread(target=lambda: (started.set(), time.sleep(60))).start(); started.wait()",
        ["1 thread"],
    ),
    "daemons": (
        "for _ in range(3): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        ["3 threads"],
    ),
    "a program": ("p = subprocess.Popen(['sleep', '60'])", ["a program that still runs"]),
    "a program that has ended": ("subprocess.run(['true'])", []),
    "programs that have ended and were not waited for": (
        """
        def children(): return open(f'/proc/self/task/{os.getpid()}/children').read().split()
        for _ in range(3): os.posix_spawn('/bin/true', ['true'], {})
        while not all(' Z ' in open(f'/proc/{pid}/stat').read() for pid in children()): pass
        """,
        [],
    ),
    "an executor": (
        "from concurrent.futures import ThreadPoolExecutor; e = ThreadPoolExecutor(2); e.submit(int).result()",
        ["1 thread"],
    ),
    "a closed descriptor": ("os.close(own.fileno())", ["the worker's own descriptors closed or replaced"]),
    "a replaced descriptor": (
        "f = tempfile.TemporaryFile(); os.dup2(f.fileno(), own.fileno())",
        ["the worker's own descriptors closed or replaced"],
    ),
    "all descriptors closed": ("os.closerange(3, 65536)", ["the worker's own descriptors closed or replaced"]),
    "a descriptor of its own": ("f = open('/dev/null')", []),
    "a hundred files of its own": ("files = [open('/dev/null') for _ in range(100)]", []),
    "no descriptor free": (
        """
        try:
            while True: os.open('/dev/null', os.O_RDONLY)
        except OSError:
            pass
        """,
        ["too many open files"],
    ),
    "several": (
        "p = subprocess.Popen(['sleep', '60']); threading.Thread(target=time.sleep, args=(60,)).start()",
        ["1 thread", "a program that still runs"],
    ),
}


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    """What was found in each case."""
    codes = json.dumps({name: dedent(code) for name, (code, _) in CASES.items()})
    done = subprocess.run([sys.executable, "-c", RUNNER], input=codes, capture_output=True, text=True, timeout=50, check=False)
    assert len(done.stdout.splitlines()) == len(CASES), done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.parametrize("case", CASES)
def test_what_a_job_leaves_is_found_and_named(found: dict[str, list[str]], case: str) -> None:
    """process C12, E8: and what has ended is no leftover."""
    assert found[case] == CASES[case][1]
