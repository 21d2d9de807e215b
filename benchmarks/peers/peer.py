"""A queue to compare: what its adapter says of itself, its environment, its database, and its commands.

An adapter opens with inline metadata, as PEP 723 has it, which says how it is run. What it needs, pinned, stands in peers.toml
for all benchmarks. It is read and never imported here: its library lives in an environment of its own.
"""

from __future__ import annotations

import glob
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import psycopg

from support.servers import Server

ROOT = Path(__file__).parents[2]
HOMES = ROOT / ".make" / "compare"
PEERS = tomllib.loads(Path(__file__).with_name("peers.toml").read_text(encoding="utf-8"))
BLOCK = re.compile(r"^(?P<mark>#|//) /// script\n(?P<lines>.*?)^(?P=mark) ///$", re.MULTILINE | re.DOTALL)


class Trouble(Exception):
    """Something that keeps a peer from being measured. Its text goes into the table."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One adapter, with what every benchmark has to know of it."""

    section: ClassVar[str]
    """Below [tool], where its metadata are."""

    adapter: Path
    name: str
    needs: list[str]
    python: str = ""
    home_of: str = ""
    """The peer whose environment it shares, where it is another setting of the same."""
    worker: list[str]
    setup: list[list[str]]
    env: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, adapter: Path) -> Self:
        """Read what an adapter says of itself."""
        block = BLOCK.search(adapter.read_text(encoding="utf-8"))
        assert block is not None, f"{adapter} has no metadata"
        lines = [line.removeprefix(block["mark"]).removeprefix(" ") for line in block["lines"].splitlines()]
        said: dict[str, Any] = tomllib.loads("\n".join(lines))["tool"][cls.section]
        return cls(adapter=adapter, **{"setup": [[*_program(adapter), "setup"]], **PEERS[_slug(adapter)], **said})

    @classmethod
    def all(cls, adapters: Path) -> list[Self]:
        """Return all peers of a folder, Fencepost first."""
        found = [cls.read(path) for path in adapters.glob("with_*") if path.suffix in {".py", ".mjs"}]
        return sorted(found, key=lambda peer: (peer.slug != "fencepost", peer.name.lower()))

    @property
    def slug(self) -> str:
        """Its adapter's name, as in ONLY=slug."""
        return _slug(self.adapter)

    @property
    def versions(self) -> str:
        """What is pinned."""
        return ", ".join(need for need in self.needs if re.search(r"\d", need) and not need.startswith("node@"))

    # ---- its environment

    @property
    def home(self) -> Path:
        """Where its packages are. Without needs, it runs in the environment that runs this."""
        return HOMES / (self.home_of or self.slug) if self.needs else Path(sys.prefix)

    def install(self) -> None:
        """Make its environment, unless it is there already."""
        stamp = self.home / ".installed"
        wanted = json.dumps([self.needs, self.python])
        if not self.needs or (stamp.exists() and stamp.read_text() == wanted):
            return
        if self.adapter.suffix == ".mjs":
            self.home.mkdir(parents=True, exist_ok=True)
            run(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(self.home), *self.needs], os.environ)
        else:
            # Where pyenv has other versions of Python, uv finds them only on the path.
            found = glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin"))
            env = {**os.environ, "PATH": ":".join([*found, os.environ["PATH"]]), "UV_PYTHON_DOWNLOADS": "automatic"}
            uv = str(_uv())
            run([uv, "venv", "-q", "--clear", "--python", self.python, str(self.home)], env)
            run(
                [uv, "pip", "install", "-q", "--compile-bytecode", "--python", str(self.home / "bin" / "python"), *self.needs],
                env,
            )
        stamp.write_text(wanted)

    # ---- its commands

    @property
    def program(self) -> list[str]:
        """Its adapter, as a command to which words are added."""
        return _program(self.adapter)

    def command(self, words: list[str], database: str, **more: object) -> list[str]:
        """Fill in a command of the metadata."""
        places = {
            "bin": self.home / "bin",
            "python": self.home / "bin" / "python",
            "node": self.home / "node_modules" / ".bin" / "node",
            "adapter": self.adapter,
            "database": database,
            **more,
        }
        return [word.format_map(places) for word in words]

    def environment(self, database: str, log: Path) -> dict[str, str]:
        """Return what its programs find in their environment: nothing of ours that could set up another queue."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TZ") if name in os.environ}
        parts = psycopg.conninfo.conninfo_to_dict(database)
        return {
            **kept,
            "PYTHONPATH": f"{self.adapter.parents[1]}:{self.adapter.parent}",
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "DATABASE_URL": database,
            "PGHOST": str(parts["host"]),
            "PGPORT": str(parts["port"]),
            "PGUSER": str(parts["user"]),
            "PGDATABASE": str(parts["dbname"]),
            "JOBS_LOG": str(log),
            "PEER_HOME": str(self.home),
            **self.env,
        }


@dataclass(frozen=True)
class Place:
    """Where one trial of a peer happens: a database of its own, a folder of its own, and the jobs' log."""

    peer: Peer
    server: Server
    database: str
    folder: Path

    @classmethod
    def new(cls, peer: Peer, server: Server, folder: Path) -> Self:
        """Create the database and what the peer needs in it."""
        name = f"peer_{peer.slug}"
        with psycopg.connect(server.url(), autocommit=True) as conn:
            conn.execute(f'drop database if exists "{name}" with (force)')
            conn.execute(f'create database "{name}"')
        place = cls(peer, server, server.url(name), folder)
        for words in peer.setup:
            place.run(words)
        return place

    @property
    def log(self) -> Path:
        """What the jobs write."""
        return self.folder / "jobs.log"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of its programs."""
        return self.peer.environment(self.database, self.log)

    def run(self, words: list[str], *arguments: str) -> str:
        """Run one of its commands to its end, with arguments as they stand, and return what it has written."""
        return run([*self.peer.command(words, self.database), *arguments], self.environment, self.folder)


def run(command: list[str], env: Mapping[str, str], cwd: Path = ROOT) -> str:
    """Run a program to its end, and return what it has written. Trouble if that was no good one."""
    try:
        done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Trouble(str(error)) from error
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["it said nothing"]
        raise Trouble(f"{os.path.basename(command[0])} {command[1]}: exit {done.returncode}: {last[0][:200]}")
    return done.stdout


def _slug(adapter: Path) -> str:
    return adapter.stem.removeprefix("with_")


def _program(adapter: Path) -> list[str]:
    return ["{node}" if adapter.suffix == ".mjs" else "{python}", "{adapter}"]


def _uv() -> Path:
    uv = ROOT / ".make" / "uv" / "bin" / "uv"
    if not uv.exists():
        run([sys.executable, "-m", "venv", str(uv.parents[1])], os.environ)
        run([str(uv.with_name("python")), "-m", "pip", "install", "-qq", "uv"], os.environ)
    return uv
