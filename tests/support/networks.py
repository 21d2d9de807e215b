"""A machine of its own on the network: a namespace, a cable to it, and what may befall the cable."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
from pathlib import Path

from support.databases import Database

NETWORKS = range(1, 255)

DROPPED = {
    "silence": ("input", "output"),
    "answers lost": ("input",),
}
"""The accidents in which the link stays up, and where the machine's packets are dropped."""


class Machine:
    """A machine that reaches this one at `host`, and no other. `inside` is what starts a program on it."""

    def __init__(self) -> None:
        # One for each test that runs now: whoever holds the lock on its file has the number.
        self._lock, number = _taken()
        self.name = f"fencepost-{number}"
        self._cable = f"fp{number}"
        self.host, self.address = f"10.213.{number}.1", f"10.213.{number}.2"
        self.inside = ("ip", "netns", "exec", self.name)
        # Of a test run that was killed.
        self._forget()
        self._set_up()

    def restart(self) -> None:
        """Have it come back with the same address, knowing nothing of its connections. What ran there is dead already."""
        self._forget()
        self._set_up()

    def _forget(self) -> None:
        subprocess.run(["ip", "netns", "delete", self.name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "delete", self._cable], capture_output=True, check=False)

    def _set_up(self) -> None:
        _run("ip", "netns", "add", self.name)
        _run("ip", "link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        _run("ip", "address", "add", f"{self.host}/30", "dev", self._cable)
        _run("ip", "link", "set", self._cable, "up")
        for words in (f"address add {self.address}/30 dev eth0", "link set lo up", "link set eth0 up"):
            _run("ip", "-n", self.name, *words.split())

    def url(self, database: Database) -> str:
        """Return the address of a database from there, for the worker's role, who may come from there from now on."""
        hba = database.server.data / "pg_hba.conf"
        with hba.open("a", encoding="utf-8") as file:
            file.write(f"host all all {self.address}/32 trust\n")
        database.execute("select pg_reload_conf()")
        return database.worker_url.replace("127.0.0.1", self.host)

    def cut(self, accident: str) -> None:
        """Pull the cable, or have packets dropped without a word."""
        if accident == "cable":
            _run("ip", "link", "set", self._cable, "down")
            return
        _run(*self.inside, "nft", "add", "table", "inet", "cut")
        for hook in DROPPED[accident]:
            chain = f"{{ type filter hook {hook} priority 0 ; policy drop ; }}"
            _run(*self.inside, "nft", "add", "chain", "inet", "cut", hook, chain)

    def heal(self, accident: str) -> None:
        """Undo what `cut` did."""
        if accident == "cable":
            _run("ip", "link", "set", self._cable, "up")
        else:
            _run(*self.inside, "nft", "delete", "table", "inet", "cut")

    def remove(self) -> None:
        """Leave nothing of it."""
        _run("ip", "link", "delete", self._cable)
        _run("ip", "netns", "delete", self.name)
        os.close(self._lock)


def _taken() -> tuple[int, int]:
    for number in NETWORKS:
        lock = os.open(Path(tempfile.gettempdir(), f"fencepost-network-{number}.lock"), os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            continue
        return lock, number
    message = "no network is free"
    raise AssertionError(message)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
