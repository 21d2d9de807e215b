"""What is kept of an exception: bounded, readable, and written whatever the exception does.

An exception can be 500 MB of text, raise in its own __str__, or hold what no encoding has. It is formatted as part of the
run, so one that hangs here ends at the max runtime; nothing of it leaves the process but this text.
"""

from __future__ import annotations

import os
import traceback
from typing import Any

LIMIT = 64 * 1024
"""Characters that are kept of a traceback: its head, and its end, where the last frame and the class are."""

LINE = 2_000
SUMMARY = 2_000
HEAD = 8 * 1024

_OURS = os.path.dirname(__file__)


def describe(error: BaseException) -> dict[str, Any]:
    """Return class, message and traceback of `error`."""
    name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    return {"class": clean(name, 500), "message": clean(_text(error), SUMMARY), "traceback": _traceback(error)}


def summarize(description: dict[str, Any]) -> str:
    """Return the line that stands for a description in a list of jobs."""
    message = description["message"]
    return f"{description['class']}: {message}" if message else str(description["class"])


def clean(text: str, limit: int) -> str:
    """Return `text` cut to `limit` characters, without what PostgreSQL or UTF-8 can't hold."""
    cut = text[:limit] + (f"… ({len(text) - limit} more characters)" if len(text) > limit else "")
    return cut.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as wrong:  # noqa: BLE001  # the exception's own code
        return f"<its str() raised {type(wrong).__name__}>"


def _traceback(error: BaseException) -> str:
    trace = error.__traceback__
    # The frames above the job's own are ours, and say nothing.
    while trace is not None and trace.tb_next is not None and os.path.dirname(trace.tb_frame.f_code.co_filename) == _OURS:
        trace = trace.tb_next
    try:
        lines = "".join(traceback.format_exception(type(error), error, trace)).split("\n")
    except BaseException as wrong:  # noqa: BLE001  # the exception's own code
        return f"<its traceback could not be formatted: {type(wrong).__name__}>"
    text = "\n".join(clean(line, LINE) for line in lines)
    if len(text) > LIMIT:
        text = f"{text[:HEAD]}\n… ({len(text) - LIMIT} characters left out)\n{text[HEAD - LIMIT :]}"
    return text
