"""A real PgBouncer in transaction mode, before a database of the tests."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from urllib.parse import quote

from support.databases import Database
from support.servers import _die_with_the_test_run, _free_port, _unprivileged_user, give_to, temporary_folder
from support.waiting import wait_until

CONFIGURATION = """
[databases]
* = host=127.0.0.1 port={server}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
logfile = {folder}/log
"""


def program() -> str | None:
    """Return where PgBouncer is, if it is installed."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    return shutil.which("pgbouncer", path=path)


class Pooler:
    """One PgBouncer, with its defaults but for `settings`."""

    def __init__(self, database: Database, **settings: object) -> None:
        found = program()
        assert found is not None
        user = _unprivileged_user() if os.geteuid() == 0 else None
        self.folder = temporary_folder(user)
        self.port = _free_port()
        self._database = database
        text = CONFIGURATION.format(server=database.server.port, port=self.port, folder=self.folder)
        (self.folder / "ini").write_text(text + "".join(f"{name} = {value}\n" for name, value in settings.items()))
        (self.folder / "users").write_text(f'"postgres" ""\n"{database.worker}" ""\n')
        give_to(user, self.folder)
        self._program, self._user = found, user
        self._start()

    def restart(self) -> None:
        """End it at once, with all connections, and start it again."""
        self._process.kill()
        self._process.wait(10)
        self._start()

    def url(self, user: str | None = None, database: str | None = None) -> str:
        """Return the address of the database behind it, for the worker's login unless told otherwise."""
        name = database or self._database.name
        return f"postgresql://{user or self._database.worker}@127.0.0.1:{self.port}/{quote(name)}"

    def log(self) -> str:
        """Return what it has said."""
        file = Path(self.folder / "log")
        return file.read_text(errors="replace") if file.exists() else ""

    def close(self) -> None:
        """End it, and leave nothing."""
        self._process.kill()
        self._process.wait(10)
        shutil.rmtree(self.folder)

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [self._program, "-q", self.folder / "ini"],
            user=self._user,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_die_with_the_test_run,  # noqa: PLW1509  # it only makes one system call
        )
        wait_until(self._accepts, what=f"the start of PgBouncer: {self.log()}")

    def _accepts(self) -> bool:
        assert self._process.poll() is None, self.log()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
