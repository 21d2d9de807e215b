"""docs/first-session.md, run as written: every command of it in one shell, every answer as it stands there.

The rules of such a document:
- A block of `python` is saved under the name in its first line.
- In a block of `console`, what stands after `$ ` is given to the shell, and what follows is what the shell then shows. `…` is
  any text within a line, alone on a line any lines. How many spaces align a table depends on what varies: a run is as good as
  another.
- Each command has to succeed, and its answer has to fit at once. Commands that only look are repeated until it fits: where the
  document shows what comes of something, its reader looks again.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from support.databases import Database
from support.waiting import wait_until

DOCUMENT = Path(__file__).parents[2] / "docs" / "first-session.md"

LOOKS = ("fencepost list", "fencepost show", "fencepost status", "grep")
WITHIN = 20.0
"""Seconds for which a command that only looks is repeated, and after which any command is too slow."""

MADE_BEFOREHAND = {"python3 -m venv .venv": "ln -s {environment} .venv", "pip install fencepost": "true"}
"""What would need time and a network: the environment is there already, with the wheel of this checkout."""

DATABASE = "postgresql://localhost/labels"

BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "----- ended with"


@dataclass(frozen=True)
class Save:
    name: str
    text: str


@dataclass(frozen=True)
class Type:
    command: str
    shown: str


def steps(document: str) -> Iterator[Save | Type]:
    """What a reader of the document does, in its order."""
    for language, text in BLOCK.findall(document):
        if language == "python":
            yield Save(text.partition("\n")[0].removeprefix("# "), text)
            continue
        before, *commands = re.split(r"^\$ ", text, flags=re.MULTILINE)
        assert not before, f"a block of the document begins without a command: {before}"
        for command, _, shown in (one.partition("\n") for one in commands):
            yield Type(command, shown)


def fits(shown: str, documented: str) -> bool:
    """Whether a command has shown what the document says."""
    lines = (
        "(?:.*\n)*" if line == "…" else re.sub(r"(\\ )+", " +", re.escape(line)).replace("…", ".*") + " *\n"
        for line in documented.splitlines()
    )
    return re.fullmatch("".join(lines), shown) is not None


class Shell:
    """One interactive bash, but for the terminal: it tells the numbers of its jobs, and answers stay plain text."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._transcript = folder.with_name("transcript")
        with self._transcript.open("ab") as transcript:
            self._process = subprocess.Popen(
                ["bash", "--norc", "--noprofile", "--noediting", "-i"],
                cwd=folder,
                env={"PATH": os.defpath, "HOME": str(folder), "LANG": "C.UTF-8", "VIRTUAL_ENV_DISABLE_PROMPT": "1"},
                stdin=subprocess.PIPE,
                stdout=transcript,
                stderr=transcript,
                text=True,
                encoding="utf-8",
                start_new_session=True,
            )
        # `$?` stays what the command before has made it: the document may ask for it.
        self.type(f"told() {{ local code=$?; echo '{MARK}' $code; return $code; }}; PS1=")

    def type(self, command: str) -> tuple[str, int]:
        """Give the shell a command, wait for its end, and return what was shown meanwhile and the exit code."""
        start = self._transcript.stat().st_size
        self._process.stdin.write(f"{command}\ntold\n")
        self._process.stdin.flush()

        def ended() -> re.Match[str] | None:
            shown = self._transcript.read_bytes()[start:].decode(errors="replace")
            return re.fullmatch(rf"(.*){MARK} (\d+)\n", shown, re.DOTALL)

        found = wait_until(ended, within=WITHIN, what=f"the end of `{command}`")
        return found[1], int(found[2])

    def children(self) -> list[psutil.Process]:
        """Return what was started in it and has not ended: workers have groups of their own, but its session."""
        return [one for one in psutil.process_iter() if one.pid != self._process.pid and self._is_ours(one)]

    def end(self) -> None:
        """Kill all that was started in it, and the shell."""
        self._process.kill()
        self._process.communicate()
        wait_until(self._nothing_left_of_killed, what="the end of what was started in the shell")

    def _nothing_left_of_killed(self) -> bool:
        left = self.children()
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return not left

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return os.getsid(process.pid) == self._process.pid and process.status() != psutil.STATUS_ZOMBIE
        except (ProcessLookupError, psutil.NoSuchProcess):
            return False


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A shell in an empty folder, in which nothing is set."""
    (tmp_path / "empty").mkdir()
    opened = Shell(tmp_path / "empty")
    yield opened
    opened.end()


def follow(document: str, shell: Shell, substitutes: Callable[[str], str] = str) -> None:
    """Do all that the document says, and fail where something else comes of it."""
    for step in steps(document):
        match step:
            case Save(name, text):
                (shell.folder / name).write_text(text, encoding="utf-8")
            case Type(command, documented):
                until = time.monotonic() + (WITHIN if command.startswith(LOOKS) else 0)
                shown, code = shell.type(substitutes(command))
                while not (code == 0 and fits(shown, documented)):
                    if time.monotonic() >= until:
                        told = f"---- the document says:\n{documented}---- it is, with exit code {code}:\n{shown}"
                        pytest.fail(f"$ {command}\n{told}", pytrace=False)
                    shown, code = shell.type(substitutes(command))


@pytest.mark.timeout(120)
def test_the_first_session_is_as_the_document_says(python: Path, empty_database: Database, shell: Shell) -> None:
    """From the empty folder to the exit code of the supervisor, and nothing is left running."""
    document = DOCUMENT.read_text(encoding="utf-8")
    for once in (*MADE_BEFOREHAND, DATABASE):
        assert document.count(once) == 1, once

    def substitutes(command: str) -> str:
        if command in MADE_BEFOREHAND:
            return MADE_BEFOREHAND[command].format(environment=python.parents[1])
        return command.replace(DATABASE, empty_database.url)

    follow(document, shell, substitutes)
    assert shell.children() == []


# ---- that a wrong document would be found


@pytest.mark.parametrize(
    ("command", "documented"),
    [
        ("echo done", "dead\n"),
        ("echo done", ""),
        ("echo done", "done\n0\n"),
        ("printf 'done\\n0\\n'", "done…\n"),
        ("printf 'done\\n0\\n'", "…\ndone\n"),
        ("false", ""),
    ],
)
def test_what_is_not_as_the_document_says_is_told(shell: Shell, command: str, documented: str) -> None:
    with pytest.raises(pytest.fail.Exception) as failed:
        follow(f"```console\n$ {command}\n{documented}```\n", shell)
    assert failed.value.msg.startswith(f"$ {command}\n---- the document says:\n{documented}----")


def test_a_document_that_is_right_passes(shell: Shell) -> None:
    """With a job in the background, an exit code, and text that varies."""
    follow(
        "```python\n# made.py\nimport os\n```\nOne line:\n"
        "```console\n$ cat made.py\n# made.py\nimport os\n$ echo a  b c\na … c\n"
        "$ (trap 'exit 0' TERM; echo went > log; while sleep 0.1; do :; done) &\n[1] …\n$ grep went log\nwent\n"
        "$ kill %1; wait %1; echo $?\n0\n"
        "$ printf '1\\n2\\n3\\n'\n1\n…\n3\n```\n",
        shell,
    )
