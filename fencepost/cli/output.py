"""How answers look: for people, for pipes and as JSON.

Invariant: texts that come out of jobs are data. Control characters are made visible, nothing is markup, and JSON is
passed on as the server wrote it, since parsing it could fail or lose digits.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from fencepost.cli.base import Refused

NARROWEST = 132
"""Columns that a table has at least."""


@dataclass(frozen=True, slots=True)
class Json:
    """JSON text that becomes part of a document as it stands."""

    text: str


def json_or_none(text: str | None) -> Json | None:
    """Return JSON text as part of a document."""
    return None if text is None else Json(text)


def say(text: str) -> None:
    """Answer on stdout, whole or with an error: unbuffered, Python would lose what a pipe or a disk did not take."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
        with open(sys.stdout.fileno(), "w", encoding=sys.stdout.encoding, errors="backslashreplace", closefd=False) as answer:
            answer.write(f"{text}\n")
    except BrokenPipeError:
        raise  # `| head` has seen enough; click leaves quietly
    except OSError as error:
        raise Refused(f"the answer can't be written: {error.strerror}") from None


def say_json(document: Any) -> None:
    """Answer with one JSON document, in ASCII: nothing in it can move a terminal's cursor."""
    pieces: dict[str, str] = {}

    def convert(value: Any) -> Any:
        match value:
            case Json():
                mark = uuid.uuid4().hex
                pieces[f'"{mark}"'] = _ascii(value.text)
                return mark
            case datetime():
                return value.astimezone(UTC).isoformat()
            case timedelta():
                return value.total_seconds()
            case _:
                raise TypeError(f"{type(value).__name__} has no place in an answer")

    text = json.dumps(document, default=convert, indent=2)
    if pieces:
        text = re.sub("|".join(pieces), lambda mark: pieces[mark[0]], text)
    say(text)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, elastic: int = 0) -> str:
    """Return a table. On a terminal its last `elastic` columns are cut to fit; elsewhere no line is ever cut.

    A terminal that is narrower than the rest breaks the lines itself: half of an id would be none.
    """
    from rich.console import Console  # noqa: PLC0415  # a tenth of a second that only tables cost
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    terminal = sys.stdout is not None and sys.stdout.isatty()
    drawn = Table(box=None, pad_edge=False, header_style="bold" if terminal else "")
    for place, name in enumerate(columns):
        cut_to_fit = place >= len(columns) - elastic
        drawn.add_column(name, no_wrap=not cut_to_fit, min_width=20 if cut_to_fit else None)
    for row in rows:
        drawn.add_row(*(Text(visible(cell), no_wrap=True, overflow="ellipsis") for cell in row))
    width = max(shutil.get_terminal_size().columns, NARROWEST) if terminal else 1_000_000
    console = Console(file=io.StringIO(), force_terminal=terminal, width=width, highlight=False, markup=False, emoji=False)
    with console.capture() as capture:
        console.print(drawn)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def visible(text: str) -> str:
    """Return `text` on one line, with what does not print written as an escape."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def cut(text: str, limit: int) -> str:
    """Return at most `limit` characters of `text`, and how many were left out."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more characters)"


def duration(seconds: float) -> str:
    """Return a duration as people say it."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    if seconds < 0.1:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def between(start: datetime, end: datetime) -> str:
    """Return how long after `start` `end` is."""
    return duration((end - start).total_seconds())


def _ascii(text: str) -> str:
    # Outside of strings JSON is ASCII, so what is not can be written as an escape wherever it stands.
    return re.sub(r"[^\x20-\x7e]", lambda one: json.dumps(one[0])[1:-1] if one[0] != "\x7f" else "\\u007f", text)
