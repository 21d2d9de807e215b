"""A queue to compare: what its adapter says of itself, its environment, its database, and its commands.

An adapter opens with inline script metadata (PEP 723): what it needs, pinned, and under [tool.crash] how it is run and what its
table is asked. It is read and never imported here: its library lives in an environment of its own.
"""

from __future__ import annotations

import glob
import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from support.servers import Server

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
HOMES = ROOT / ".make" / "compare"
BLOCK = re.compile(r"^(?P<mark>#|//) /// script\n(?P<lines>.*?)^(?P=mark) ///$", re.MULTILINE | re.DOTALL)


class Trouble(Exception):
    """Something that keeps a peer from being measured. Its text goes into the table."""


class TooLate(Trouble):
    """The accident came when the innocents were done: the machine was busy, or the poison waited behind them. Try again."""


@dataclass(frozen=True)
class Peer:
    """One adapter."""

    adapter: Path
    needs: list[str]
    python: str
    name: str
    several: bool
    """Whether its worker is more than one process."""
    rescue: str
    worker: list[str]
    jobs: str
    setup: list[list[str]]
    age: str
    env: dict[str, str]

    @classmethod
    def read(cls, adapter: Path) -> Peer:
        """Read what an adapter says of itself."""
        block = BLOCK.search(adapter.read_text(encoding="utf-8"))
        assert block is not None, f"{adapter} has no metadata"
        lines = [line.removeprefix(block["mark"]).removeprefix(" ") for line in block["lines"].splitlines()]
        said: dict[str, Any] = tomllib.loads("\n".join(lines))
        own = said["tool"]["crash"]
        return cls(
            adapter=adapter,
            needs=said["dependencies"],
            python=said.get("requires-python", ""),
            name=own["name"],
            several=own["several"],
            rescue=own["rescue"],
            worker=own["worker"],
            jobs=own["jobs"],
            setup=own.get("setup", [["{node}" if adapter.suffix == ".mjs" else "{python}", "{adapter}", "setup"]]),
            age=own.get("age", ""),
            env=own.get("env", {}),
        )

    @property
    def slug(self) -> str:
        """Its adapter's name, as in ONLY=slug."""
        return self.adapter.stem.removeprefix("with_")

    @property
    def versions(self) -> str:
        """What is pinned."""
        return ", ".join(need for need in self.needs if re.search(r"\d", need) and not need.startswith("node@"))

    # ---- its environment

    @property
    def home(self) -> Path:
        """Where its packages are. Without needs, it runs in the environment that runs this."""
        return HOMES / self.slug if self.needs else Path(sys.prefix)

    def install(self) -> None:
        """Make its environment, unless it is there already."""
        stamp = self.home / ".installed"
        wanted = json.dumps([self.needs, self.python])
        if not self.needs or (stamp.exists() and stamp.read_text() == wanted):
            return
        if self.adapter.suffix == ".mjs":
            self.home.mkdir(parents=True, exist_ok=True)
            _run(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(self.home), *self.needs], os.environ)
        else:
            # Where pyenv has other versions of Python, uv finds them only on the path.
            found = glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin"))
            env = {**os.environ, "PATH": ":".join([*found, os.environ["PATH"]]), "UV_PYTHON_DOWNLOADS": "automatic"}
            uv = str(_uv())
            _run([uv, "venv", "-q", "--clear", "--python", self.python, str(self.home)], env)
            _run(
                [uv, "pip", "install", "-q", "--compile-bytecode", "--python", str(self.home / "bin" / "python"), *self.needs],
                env,
            )
        stamp.write_text(wanted)

    # ---- its commands

    def command(self, words: list[str], database: str) -> list[str]:
        """Fill in a command of the metadata."""
        places = {
            "bin": self.home / "bin",
            "python": self.home / "bin" / "python",
            "node": self.home / "node_modules" / ".bin" / "node",
            "adapter": self.adapter,
            "database": database,
        }
        return [word.format_map(places) for word in words]

    def environment(self, database: str, log: Path) -> dict[str, str]:
        """Return what its programs find in their environment: nothing of ours that could set up another queue."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TZ") if name in os.environ}
        parts = psycopg.conninfo.conninfo_to_dict(database)
        return {
            **kept,
            "PYTHONPATH": f"{HERE}:{HERE / 'adapters'}",
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "DATABASE_URL": database,
            "PGHOST": str(parts["host"]),
            "PGPORT": str(parts["port"]),
            "PGUSER": str(parts["user"]),
            "PGDATABASE": str(parts["dbname"]),
            "CRASH_LOG": str(log),
            "CRASH_HOME": str(self.home),
            **self.env,
        }


@dataclass(frozen=True)
class Place:
    """Where one trial of a peer happens: a database of its own, a folder of its own, and the jobs' log."""

    peer: Peer
    database: str
    folder: Path

    @classmethod
    def new(cls, peer: Peer, server: Server, folder: Path) -> Place:
        """Create the database and what the peer needs in it."""
        name = f"crash_{peer.slug}"
        with psycopg.connect(server.url(), autocommit=True) as conn:
            conn.execute(f'drop database if exists "{name}" with (force)')
            conn.execute(f'create database "{name}"')
        place = cls(peer, server.url(name), folder)
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

    def run(self, words: list[str]) -> None:
        """Run one of its commands to its end."""
        _run(self.peer.command(words, self.database), self.environment, self.folder)

    def enqueue(self, *jobs: dict[str, object]) -> None:
        """Enqueue jobs in their order."""
        program = "{node}" if self.peer.adapter.suffix == ".mjs" else "{python}"
        command = self.peer.command([program, "{adapter}", "enqueue"], self.database)
        _run([*command, json.dumps(jobs)], self.environment, self.folder)

    def states(self) -> dict[str, tuple[str, str]]:
        """Ask its table for the state of each job, and the attempts that it counts."""
        with psycopg.connect(self.database, autocommit=True) as conn:
            rows = conn.execute(self.peer.jobs.encode()).fetchall()
        # Where the table keeps no more than a printed dictionary, the name is found in it.
        names = ((re.search(r"[LPQ]\d?(?=')|^[LPQ]\d?$", str(name)), state, attempts) for name, state, attempts in rows)
        return {found[0]: (state, str(attempts)) for found, state, attempts in names if found}

    def age(self) -> None:
        """Put the clocks of locks forward, where no setting makes them shorter."""
        if self.peer.age:
            with psycopg.connect(self.database, autocommit=True) as conn:
                conn.execute(self.peer.age.encode())


def all_peers() -> list[Peer]:
    """Return all peers, Fencepost first."""
    found = [Peer.read(path) for path in HERE.glob("adapters/with_*") if path.suffix in {".py", ".mjs"}]
    return sorted(found, key=lambda peer: (peer.slug != "fencepost", peer.name.lower()))


def _uv() -> Path:
    uv = ROOT / ".make" / "uv" / "bin" / "uv"
    if not uv.exists():
        _run([sys.executable, "-m", "venv", str(uv.parents[1])], os.environ)
        _run([str(uv.with_name("python")), "-m", "pip", "install", "-qq", "uv"], os.environ)
    return uv


def _run(command: list[str], env: Any, cwd: Path = ROOT) -> None:
    try:
        done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Trouble(str(error)) from error
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["it said nothing"]
        raise Trouble(f"{os.path.basename(command[0])} {command[1]}: exit {done.returncode}: {last[0][:200]}")
