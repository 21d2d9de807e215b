"""Start `fencepost` without waiting for its imports: forked from a process that has done them, one a test run.

Half a second of computing a start would be most of what the tests cost. What is forked is as if it had been started with
`python -m fencepost`: a session, an environment, a search path and output of its own, no handlers imported, no thread, loop or
connection. Only that it shares memory with the nursery tells it apart, so tests that measure memory start it for real, as do
those whose environment says something to Python, the C library or the dynamic linker.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import setproctitle

PROGRAM = "fencepost"
PRELOADED = (
    "fencepost.cli",
    "fencepost.cli.run",
    "fencepost.cli.status",
    "fencepost.cli.by_hand",
    "fencepost.cli.check",
    "fencepost.cli.enqueue",
    "fencepost.cli.jobs",
    "fencepost.cli.migrate",
    "fencepost.supervisor.main",
    "fencepost.worker.boot",
    "psycopg_pool",
)
OF_A_START = ("FENCEPOST_", "PG", "DATABASE_URL", "PYTHONPATH", "SUPERVISOR_UNDER_TEST")
"""The variables that may differ from the nursery's own: whatever else does may have to be there before Python is."""

PYTHON = sys.executable


class Nursery:
    """The process that forks."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(OF_A_START)}
        self._process = subprocess.Popen(
            [PYTHON, __file__, str(theirs.fileno())], env=environment, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
        )
        theirs.close()
        self._control = ours

    def close(self) -> None:
        """Let it go: it leaves when nobody can ask any more."""
        self._control.close()
        self._process.wait(10)

    def fork(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], fds: tuple[int, int, int]
    ) -> ForkedProcess:
        """Fork a process that runs `fencepost` with these arguments; `fds` are its stdin, stdout and stderr."""
        ended, tell = os.pipe()
        request = {"arguments": list(arguments), "folder": str(folder), "environment": dict(environment)}
        try:
            socket.send_fds(self._control, [json.dumps(request).encode()], [tell, *fds])
        finally:
            os.close(tell)
        return ForkedProcess(int(self._control.recv(32)), ended)


class ForkedProcess:
    """What tests use of a `subprocess.Popen`: the nursery waits for its children, and passes on how they ended."""

    def __init__(self, pid: int, ended: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = ended

    def poll(self) -> int | None:
        """Return how it ended, as `Popen.poll` does."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises `subprocess.TimeoutExpired`."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(PROGRAM, timeout or 0.0)
        return code

    def send_signal(self, signum: int) -> None:
        """Signal it, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signum)

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._ended], [], [], timeout)[0]:
            told = os.read(self._ended, 32)
            os.close(self._ended)
            assert told, "the nursery is gone"
            self.returncode = os.waitstatus_to_exitcode(int(told))
        return self.returncode


_nursery: list[Nursery] = []


def start(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    stdout: IO[bytes],
    stderr: IO[bytes],
    stdin: IO[bytes] | None = None,
) -> ForkedProcess | subprocess.Popen[bytes]:
    """Start `fencepost` in a session of its own, by a fork of the nursery where that makes no difference."""
    if may_be_forked(environment):
        with open(os.devnull, "rb") as nothing:
            fds = ((stdin or nothing).fileno(), stdout.fileno(), stderr.fileno())
            return _the_nursery().fork(arguments, folder, environment, fds)
    return subprocess.Popen(
        [sys.executable, "-m", PROGRAM, *arguments],
        cwd=folder,
        env=dict(environment),
        stdin=stdin or subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )


def run(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], stdin: bytes = b""
) -> subprocess.CompletedProcess[str]:
    """Run `fencepost` to its end, as `subprocess.run` with captured output does, and as `start` starts it."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        given.write(stdin)
        given.seek(0)
        process = start(arguments, folder, environment, stdout, stderr, given)
        code = process.wait(30)
        for file in (stdout, stderr):
            file.seek(0)
        return subprocess.CompletedProcess(arguments, code, stdout.read().decode(), stderr.read().decode())


def may_be_forked(environment: Mapping[str, str]) -> bool:
    """Whether nothing in the environment has to be there before Python is."""
    other = {
        name
        for name in {*environment, *os.environ}
        if environment.get(name) != os.environ.get(name) and not name.startswith(OF_A_START)
    }
    measured = {"FENCEPOST_PRELOAD", "FENCEPOST_MAX_RSS"} & set(environment)
    covered = any(name.startswith("COVERAGE_") for name in environment)
    places = environment.get("PYTHONPATH", "").split(os.pathsep)
    customized = any(Path(place, "sitecustomize.py").exists() for place in places)
    return not (other or measured or covered or customized) and sys.executable == PYTHON


def close() -> None:
    """End the nursery, if there was need of one."""
    while _nursery:
        _nursery.pop().close()


def _the_nursery() -> Nursery:
    if not _nursery:
        _nursery.append(Nursery())
    return _nursery[0]


# ---- in the nursery


def _serve(control: socket.socket) -> dict[str, Any]:
    """Fork for each request, until nobody asks any more. Returns in each child, with its request."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    tell: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
        for pid in list(tell):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                os.write(told := tell.pop(pid), str(status).encode())
                os.close(told)
        if control not in ready:
            continue
        message, fds, _, _ = socket.recv_fds(control, 1024 * 1024, 4)
        if not message:
            sys.exit()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, fd in enumerate(fds[1:]):
                os.dup2(fd, number)
            os.closerange(3, 1024)
            control.detach()
            return json.loads(message)  # type: ignore[no-any-return]
        tell[pid] = fds[0]
        for fd in fds[1:]:
            os.close(fd)
        control.send(str(pid).encode())


def _become(request: dict[str, Any], path: list[str]) -> None:
    os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = [request["folder"], *given, *path]
    importlib.invalidate_caches()
    program = importlib.import_module(f"{PROGRAM}.__main__")
    sys.argv[:] = [str(program.__file__), *request["arguments"]]
    program.main()


if __name__ == "__main__":
    # The first is this folder, which a started Python does not know.
    del sys.path[0]
    as_started = list(sys.path)
    for name in PRELOADED:
        importlib.import_module(name)
    # It looks for its place beside the environment once, and would not find one that has been replaced.
    setproctitle.getproctitle()
    # By returning, so that a child ends as Python ends.
    _become(_serve(socket.socket(fileno=int(sys.argv[1]))), as_started)
