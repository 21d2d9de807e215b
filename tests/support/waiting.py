"""Wait for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

STEPS = (0.005, 0.04)
"""Seconds between two looks: the first time, and in the end. What comes soon is seen soon, and waiting costs little."""


def wait_until(condition: Callable[[], T], within: float = 10.0, what: str = "the condition") -> T:
    """Return what `condition` returns as soon as that is true; fail after `within` seconds, telling its last value."""
    deadline = time.monotonic() + within
    step, longest = STEPS
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            message = f"{what} did not come about within {within:g} s; last seen: {value!r}"
            raise AssertionError(message)
        time.sleep(step)
        step = min(longest, step * 1.3)
