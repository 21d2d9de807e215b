"""Wait for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

STEP = 0.015
"""Seconds between two looks."""


def wait_until(condition: Callable[[], T], within: float = 10.0, what: str = "the condition") -> T:
    """Return what `condition` returns as soon as that is true; fail after `within` seconds, telling its last value."""
    deadline = time.monotonic() + within
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            message = f"{what} did not come about within {within:g} s; last seen: {value!r}"
            raise AssertionError(message)
        time.sleep(STEP)
