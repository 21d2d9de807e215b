"""Keep our own limits: a job of the same user can lower them by one call, and without descriptors no worker is forked.

What someone raises stays. A hard limit that was lowered can't be had back without privilege; as much as it allows is.
"""

from __future__ import annotations

import math
import resource

import structlog

log = structlog.get_logger()

NAMES = {name: getattr(resource, name) for name in sorted(vars(resource)) if name.startswith("RLIMIT_")}


class Limits:
    """The limits of this process, as they were last found or set."""

    def __init__(self) -> None:
        self._known = {name: resource.getrlimit(number) for name, number in NAMES.items()}

    def keep(self) -> None:
        """Put back those that have been lowered."""
        for name, number in NAMES.items():
            found, known = resource.getrlimit(number), self._known[name]
            if found != known and _height(found[0]) < _height(known[0]):
                log.warning("a limit of the supervisor was lowered: it is put back", limit=name, to=found[0], back_to=known[0])
                _put_back(number, known, found)
                found = resource.getrlimit(number)
            self._known[name] = found


def _put_back(number: int, known: tuple[int, int], found: tuple[int, int]) -> None:
    soft, hard = found[1] if _height(found[1]) < _height(known[0]) else known[0], found[1]
    for limits in (known, (soft, hard)):
        try:
            resource.setrlimit(number, limits)
        except (OSError, ValueError):
            continue  # the hard limit is lower now, and to raise it takes privilege
        return


def _height(limit: int) -> float:
    return math.inf if limit == resource.RLIM_INFINITY else limit
