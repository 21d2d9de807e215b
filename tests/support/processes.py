"""Real supervisors, started as an operator would and signalled for real."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from signal import SIGTERM, Signals
from typing import Any

import psutil

from support import nursery
from support.waiting import wait_until

SETTINGS: Mapping[str, object] = {
    "concurrency": 2,
    "lease": "6s",
    "heartbeat": "1.5s",
    "poll": "1s",
    "sweep": "0.5s",
    "max_runtime": "60s",
    "drain_timeout": "5s",
    "max_attempts": 3,
    "backoff": "1s",
    "log_format": "json",
    "log_level": "debug",
}

MARKER = "SUPERVISOR_UNDER_TEST"
"""The environment variable by which programs that jobs have started are known."""

TITLE = "fencepost: worker"

WITHOUT_TIMERS = {
    "sitecustomize.py": """
import fencepost.deadline

def refuse(*_):
    raise OSError(11, "no timer is given")

fencepost.deadline.Deadline.__init__ = refuse
"""
}
"""Files for a supervisor that no timer of the kernel's ends when it stalls, as where a sandbox gives none."""

OF_THE_MACHINE = '"event": "the container allows little for these settings"'


class Supervisor:
    """`fencepost run` in a process of its own, with all that it and its jobs start. `command` is what Python runs instead;
    `inside` is the program, with its arguments, that becomes that Python elsewhere.

    Keyword settings are FENCEPOST_… variables; one that is None is not set. `environment` adds others. `files` are put into its
    working directory, modules of handlers say.
    """

    def __init__(
        self,
        url: str,
        folder: Path,
        handlers: str = "handlers_for_tests,handlers_of_accidents",
        command: tuple[str, ...] | None = None,
        inside: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        files: Mapping[str, str] | None = None,
        **settings: object,
    ) -> None:
        self.folder = folder
        self.stderr = folder / "stderr"
        self.stdout = folder / "stdout"
        self._logs: list[dict[str, Any]] = []
        self._read_to = 0
        self.put(files or {})
        self._marker = uuid.uuid4().hex
        known = {**SETTINGS, "handlers": handlers, **settings}
        self.environment = {
            **os.environ,
            "DATABASE_URL": url,
            # The test's own folder first: a test may put a module of handlers there.
            "PYTHONPATH": os.pathsep.join([str(folder), str(Path(__file__).parent)]),
            MARKER: self._marker,
            **{f"FENCEPOST_{name.upper()}": str(value) for name, value in known.items() if value is not None},
            **(environment or {}),
        }
        with self.stderr.open("ab") as stderr, self.stdout.open("ab") as stdout:
            self.process = (
                nursery.start(["run"], folder, self.environment, stdout, stderr)
                if command is None
                else subprocess.Popen(
                    [*inside, sys.executable, *command],
                    cwd=folder,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=True,
                )
            )
        self.pid = self.process.pid

    def put(self, files: Mapping[str, str]) -> None:
        """Put files into its working directory, as a deploy does: their compiled forms are not up to date any more."""
        for name, text in files.items():
            (self.folder / name).write_text(text)
            shutil.rmtree(self.folder / "__pycache__", ignore_errors=True)

    # ---- its life

    def is_alive(self) -> bool:
        """Whether the supervisor itself has not ended."""
        return self.process.poll() is None

    def signal(self, signum: Signals) -> None:
        """Send a signal to the supervisor alone."""
        self.process.send_signal(signum)

    def signal_group(self, signum: Signals) -> None:
        """Send a signal to the supervisor's process group, as a terminal or a container's init does."""
        os.killpg(self.pid, signum)

    def wait(self, timeout: float = 10.0) -> int:
        """Wait for the supervisor's end and return its exit code, negative for a signal."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            message = f"the supervisor did not leave within {timeout:g} s; its log ends:\n{self.tail()}"
            raise AssertionError(message) from None

    # ---- its workers

    def workers(self) -> list[int]:
        """Return the pids of its living workers."""
        return [pid for pid in _descendants(self.pid) if _title_of(pid).startswith(TITLE)]

    def titles(self, pids: list[int]) -> list[str]:
        """Return what processes say of themselves."""
        return [_title_of(pid) for pid in pids]

    def wait_for_workers(self, count: int = 2, within: float = 15.0) -> list[int]:
        """Wait until exactly `count` workers live and none of them is still starting; return their pids."""

        def ready() -> list[int]:
            titles = {pid: _title_of(pid) for pid in self.workers()}
            return list(titles) if len(titles) == count and not any("starting" in text for text in titles.values()) else []

        return wait_until(ready, within=within, what=f"{count} ready workers")

    def worker_of(self, job: int) -> int | None:
        """Return the pid of the worker whose title says that it runs the job."""
        return next((pid for pid in self.workers() if f" #{job} " in _title_of(pid)), None)

    def wait_for_worker_of(self, job: int, within: float = 10.0) -> int:
        """Wait until a worker says that it runs the job, and return its pid."""
        pid = wait_until(lambda: self.worker_of(job), within=within, what=f"a worker with job {job}")
        assert pid is not None
        return pid

    # ---- what it says

    def lines(self) -> list[str]:
        """Return the whole lines of its stderr, but for what the machine is that the tests run on."""
        lines = self.stderr.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line for line in lines if OF_THE_MACHINE not in line]

    def logs(self) -> list[dict[str, Any]]:
        """Return the log lines that are JSON objects; others, a job's own output say, are left out."""
        with self.stderr.open("rb") as file:
            file.seek(self._read_to)
            # Only whole lines, and each but once: this is asked many times a second.
            whole, found, _ = file.read().rpartition(b"\n")
        self._read_to += len(whole) + len(found)
        lines = whole.decode(errors="replace").splitlines()
        self._logs += _objects(line for line in lines if OF_THE_MACHINE not in line)
        return list(self._logs)

    def wait_for_log(self, predicate: Callable[[dict[str, Any]], object] | str, within: float = 10.0) -> dict[str, Any]:
        """Wait for a log line that fits the predicate, or whose event contains the text; return the first such."""

        def fits(line: dict[str, Any]) -> object:
            return predicate in str(line.get("event", "")) if isinstance(predicate, str) else predicate(line)

        def find() -> dict[str, Any] | None:
            return next((line for line in self.logs() if fits(line)), None)

        try:
            found = wait_until(find, within=within)
        except AssertionError:
            message = f"no log line {predicate!r} within {within:g} s; the log ends:\n{self.tail()}"
            raise AssertionError(message) from None
        assert found is not None
        return found

    def tail(self, lines: int = 40) -> str:
        """Return the end of its log."""
        return "\n".join(self.lines()[-lines:])

    # ---- its end

    def left(self) -> list[psutil.Process]:
        """Return all living processes that come from it: itself, its workers, the programs of their jobs.

        A worker's title is written over its environment, and a program may leave the session or close its log; not one
        process does all of it.
        """
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def stop(self, within: float = 15.0) -> None:
        """End it: asked, then by force, all that is left of it. Fails if a supervisor that was asked left something."""
        if not self.is_alive():
            # Ended by the test itself, perhaps by SIGKILL: what its workers need for noticing it, but no more.
            self._end_what_is_left(grace=3.0)
            return
        for process in self.left():
            # Frozen by the test: it could not obey, and its workers could not leave.
            _quietly(process.resume)
        self.signal(SIGTERM)
        try:
            self.process.wait(within)
        except subprocess.TimeoutExpired:
            tail = self.tail()
            self._end_what_is_left(grace=0.0, may_be_some=True)
            message = f"the supervisor did not leave within {within:g} s of TERM; its log ends:\n{tail}"
            raise AssertionError(message) from None
        self._end_what_is_left(grace=2.0)

    def kill_all(self) -> None:
        """Kill the supervisor, its workers and whatever their jobs started, as a vanishing machine does."""
        self._end_what_is_left(grace=0.0, may_be_some=True)

    def _end_what_is_left(self, grace: float, *, may_be_some: bool = False) -> None:
        found: list[psutil.Process] = []
        try:
            wait_until(lambda: not self.left(), within=grace)
        except AssertionError:
            found = self.left()
        told = [f"{process.pid} {_title_of(process.pid)}" for process in found]
        wait_until(self._nothing_left_of_killed, within=10, what="the end of what was killed")
        self.process.wait(5)
        assert may_be_some or not told, f"the supervisor left processes behind: {told}"

    def _nothing_left_of_killed(self) -> bool:
        left = self.left()
        for process in left:
            _quietly(process.kill)
        return not left

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                return False
            return (
                os.getsid(process.pid) == self.pid
                or bool(process.environ().get(MARKER) == self._marker)
                or any(_points_to(process.pid, fd, self.stderr) for fd in (1, 2))
            )
        except (psutil.Error, OSError):
            return False


def is_running(pid: int) -> bool:
    """Whether the process lives: one that is dead and not yet reaped, by whoever adopted it, does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _objects(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


def _descendants(pid: int) -> Iterator[int]:
    """Yield the children of a process and theirs: asked many times a second, so of the kernel itself."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return
    for child in map(int, children):
        yield child
        yield from _descendants(child)


def _title_of(pid: int) -> str:
    """Return a process' command line; a dead one has none."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def _points_to(pid: int, fd: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.stat(f"/proc/{pid}/fd/{fd}"), file.stat())
    except OSError:
        return False


def _quietly(act: Callable[[], object]) -> None:
    try:
        act()
    except psutil.NoSuchProcess:
        pass
