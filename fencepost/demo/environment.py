"""The environment of the demo and of all that it starts: of the caller's only what programs need to run and to speak.

Nothing in it says which database there is or how Fencepost is set up: no DATABASE_URL, FENCEPOST_… or PG… gets through,
so that the demo can touch no database but its own. It reads no setting: those are still read in one place.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

NAMES = frozenset(
    ["PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR", "TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"]
)
PREFIXES = ("LC_", "LD_", "PYTHON", "COVERAGE_")


def what_programs_need() -> dict[str, str]:
    """Return as much of the environment as programs need."""
    return {name: value for name, value in os.environ.items() if name in NAMES or name.startswith(PREFIXES)}


@contextmanager
def clean_environment() -> Iterator[dict[str, str]]:
    """Do without the rest of the environment inside the block; the value is what is left of it."""
    before = dict(os.environ)
    left = what_programs_need()
    os.environ.clear()
    os.environ.update(left)
    try:
        yield left
    finally:
        os.environ.clear()
        os.environ.update(before)
