"""What is kept of an exception: bounded, readable, and written whatever the exception does."""

from __future__ import annotations

import json
import resource
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.worker.errors import LIMIT, SUMMARY, clean, describe, summarize


def throw(error: BaseException) -> None:
    raise error


def caught(error: BaseException) -> BaseException:
    """Return `error` as it is after it was raised."""
    try:
        throw(error)
    except BaseException as raised:  # noqa: BLE001  # whatever it is
        return raised


def described(error: BaseException) -> dict[str, Any]:
    """Return the description of a raised error; each is one that PostgreSQL can store and a person can read."""
    description = describe(caught(error))
    assert set(description) == {"class", "message", "traceback"}
    assert len(description["class"]) < 600
    assert len(description["message"]) < SUMMARY + 100
    assert len(description["traceback"]) < LIMIT + 200
    text = json.dumps(description, ensure_ascii=False)
    text.encode()
    assert "\\u0000" not in text
    assert len(summarize(description)) < SUMMARY + 800
    return description


def test_class_message_and_place_are_kept() -> None:
    """The plain case; builtins without their module."""
    description = described(ValueError("no such month"))
    assert (description["class"], description["message"]) == ("ValueError", "no such month")
    assert summarize(description) == "ValueError: no such month"
    assert "in throw" in description["traceback"]
    assert description["traceback"].rstrip().endswith("ValueError: no such month")


def test_an_error_without_a_message_is_its_class() -> None:
    """No colon with nothing behind it."""
    assert summarize(described(KeyboardInterrupt())) == "KeyboardInterrupt"


class StrRaises(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


class StrLeaves(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class StrIsNone(Exception):
    def __str__(self) -> str:
        return None  # type: ignore[return-value]  # noqa: PLE0307


class ReprRaises(Exception):
    def __repr__(self) -> str:
        return 5  # type: ignore[return-value]


class StrRecurses(Exception):
    def __str__(self) -> str:
        return str(self)


class TwoArguments(Exception):
    def __init__(self, first: object, second: object) -> None:
        super().__init__("only this")
        self.first, self.second = first, second


class NoReduce(Exception):
    def __reduce__(self) -> Any:
        raise TypeError("not for you")


@pytest.mark.parametrize(
    "error",
    [
        StrRaises(),
        StrLeaves(),
        StrIsNone(),
        ReprRaises("x"),
        StrRecurses(),
        TwoArguments(lambda: 1, open),
        NoReduce("x"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_an_error_that_fights_being_told_is_told_by_its_class(error: BaseException) -> None:
    """C15, C04: nothing of it gets out, and nothing of it has to be pickled."""
    assert type(error).__qualname__ in described(error)["class"]


def test_a_name_that_fights_being_told() -> None:
    """A class may say anything of itself."""

    class Odd(Exception):
        __module__ = 5  # type: ignore[assignment]

    class Long(Exception):
        pass

    Long.__module__ = "m" * 100_000
    Long.__qualname__ = "q\0" * 100_000
    for error in (Odd("x"), Long("x")):
        described(error)


def test_a_huge_text_is_bounded_in_time_and_memory() -> None:
    """C76, E1, E11: 50 MB here; what is kept of it, the time and the memory do not grow with it beyond a few copies."""
    size = 50_000_000
    error = caught(ValueError("x" * size))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    description = described(error)
    assert time.monotonic() - began < 3
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 8 * size
    assert description["message"].startswith("xxx")
    assert f"({size - SUMMARY} more characters)" in description["message"]
    assert "in throw" in description["traceback"]


def test_a_huge_text_of_many_lines_keeps_the_last_frame_and_the_class() -> None:
    """C76: the end says what and where."""
    lines = "\n".join(f"line {number}" for number in range(500_000))
    description = described(ValueError(lines))
    assert "in throw" in description["traceback"]
    assert "ValueError: line 0" in description["traceback"]
    assert "characters left out" in description["traceback"]


def recurse(depth: int) -> None:
    try:
        recurse(depth + 1)
    except RecursionError as error:
        if depth % 300 == 0:
            raise RecursionError(f"deep {depth}") from error
        raise


def test_a_deep_recursion_through_chained_errors_is_kept_in_part() -> None:
    """C76: with its class and its last frame."""
    try:
        recurse(1)
    except RecursionError as error:
        description = described(error)
    assert description["class"] == "RecursionError"
    assert "recurse" in description["traceback"]


def test_a_long_chain_is_kept_in_part() -> None:
    """As a loop that fails in its own except clause makes one."""
    error: BaseException = ValueError("first")
    for number in range(3_000):
        following = ValueError(f"number {number}")
        following.__context__ = error
        error = following
    assert described(error)["message"] == "number 2999"


def test_a_chain_that_holds_itself_is_told() -> None:
    """An error can be its own cause."""
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert described(one)["message"] == "one"


def test_a_group_is_told_with_what_it_holds() -> None:
    """As a task group raises one."""
    description = described(ExceptionGroup("several", [ValueError("a"), TypeError("b")]))
    assert "ValueError: a" in description["traceback"]
    assert "TypeError: b" in description["traceback"]


def test_a_group_of_very_many_is_bounded() -> None:
    """In breadth, as when ten thousand tasks fail at once, and in depth."""
    described(ExceptionGroup("wide", [ValueError(f"number {number}") for number in range(10_000)]))
    error: Exception = ValueError("x")
    for _ in range(2_000):
        error = ExceptionGroup("g" * 1000, [error])
    described(error)


@pytest.mark.parametrize(
    "text", ["bad\0byte", "half \ud800 pair", "\udfff", "\x1b[31mred", "a\r\nb", "\N{PILE OF POO}" * 100_000]
)
def test_what_postgresql_or_utf8_cannot_hold_is_replaced(text: str) -> None:
    """C74, E11: and the rest is kept."""
    description = described(ValueError(text))
    for part in ("bad", "byte", "half ", " pair", "red"):
        assert (part in description["message"]) == (part in text)


@given(st.text(st.characters()), st.integers(1, 50))
def test_clean_keeps_what_fits_and_says_what_does_not(text: str, limit: int) -> None:
    """For any text at all."""
    cleaned = clean(text, limit)
    cleaned.encode()
    assert "\0" not in cleaned
    assert cleaned[: min(limit, len(text))] == clean(text[:limit], limit)
    assert ("more characters" in cleaned[limit:]) == (len(text) > limit)
