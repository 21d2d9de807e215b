"""`fencepost demo`, from its first process to the last.

Invariant: whatever ends it, nothing is left: no process, no folder, no socket; and logs only where something was not as
promised.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
from rich.console import Console, RenderableType

from fencepost.demo import server
from fencepost.demo.environment import clean_environment
from fencepost.demo.facts import verdicts
from fencepost.demo.folder import PREFIX, temporary_folder
from fencepost.demo.show import Screen, conclusion, summary
from fencepost.demo.stop import Interrupted, Stop, Trouble
from fencepost.demo.story import Story
from fencepost.supervisor.fork import become_subreaper

FAILED = 1
KILLED_BY = 128
"""And the signal's number: as a shell says it."""

LAST_LINES, WIDTH = 8, 240
"""What is shown at once of each log that is kept."""

WIDTH_OF_PICTURE = 100


def run(picture: Path | None = None) -> int:
    """Run the demo; return its exit code, 0 if all was as promised. `picture` is where to draw the summary, as SVG."""
    if not server.installed():
        return _refuse(server.NOT_INSTALLED)
    # A worker whose supervisor had to be killed comes to us, to be waited for: elsewhere perhaps no one would.
    become_subreaper()
    try:
        with clean_environment() as environment, Stop() as stop:
            return _run(environment, stop, picture)
    except Interrupted as interrupted:
        _refuse(f"stopped by {interrupted}, nothing is left behind")
        return KILLED_BY + interrupted.number
    except BrokenPipeError:
        # Whoever reads has seen enough. What is still in the buffer must not be tried again as Python leaves.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (Trouble, psycopg.Error, OSError) as error:
        return _refuse(f"the demo failed: {' '.join(str(error).split())}")


def _run(environment: dict[str, str], stop: Stop, picture: Path | None) -> int:
    screen = Screen(Console(highlight=False, markup=False, emoji=False))
    with temporary_folder() as folder, _logs_kept_after_trouble(folder):
        with ExitStack() as entered, screen:
            facts = Story(folder, environment, stop, screen, entered).run()
        judged = verdicts(facts)
        seen = summary(facts.counts, judged)
        screen.console.print(seen)
        if broken := [verdict.what for verdict in judged if not verdict.kept]:
            raise Trouble(f"not as promised: {', '.join(broken)}")
    end = conclusion(screen.seconds)
    screen.console.print(end)
    if picture is not None:
        _draw(picture, seen, end)
    return 0


@contextmanager
def _logs_kept_after_trouble(folder: Path) -> Iterator[None]:
    """Take the logs out of the folder, and show their ends, if the demo has failed."""
    try:
        yield
    except (Trouble, psycopg.Error):
        kept = Path(tempfile.mkdtemp(prefix=f"{PREFIX}logs-"))
        for log in sorted(folder.glob("*.log")):
            shutil.copy(log, kept)
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            sys.stderr.write("\n".join([f"---- {log.name} ends:", *(line[:WIDTH] for line in lines[-LAST_LINES:]), ""]))
        sys.stderr.write(f"---- all logs are kept in {kept}\n")
        raise


def _draw(picture: Path, *what: RenderableType) -> None:
    console = Console(record=True, width=WIDTH_OF_PICTURE, file=io.StringIO(), highlight=False)
    console.print(*what, sep="\n")
    console.save_svg(str(picture), title="fencepost demo")


def _refuse(line: str) -> int:
    sys.stderr.write(f"fencepost: {line}\n")
    return FAILED
