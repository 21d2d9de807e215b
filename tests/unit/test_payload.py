"""JSON in and out exactly, or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.jobs.payload import LIMIT, NotJson, encode

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(st.characters()), below, max_size=4),
    max_leaves=15,
)


@given(json_values)
def test_what_is_accepted_comes_back_equal(value: Any) -> None:
    """And what is refused is refused as NotJson, with the name that errors are to have."""
    try:
        text = encode(value, "the result")
    except NotJson as refused:
        told = str(refused)
        assert told.startswith("the result")
        return
    assert json.loads(text) == value
    assert "\0" not in text
    text.encode()


@given(st.floats(min_value=1e15, allow_infinity=False, allow_nan=False))
def test_a_large_float_that_is_accepted_equals_the_number_that_postgresql_keeps(value: float) -> None:
    """PostgreSQL keeps the shortest decimal that denotes the float, and writes it as an integer."""
    try:
        text = encode(value, "value")
    except NotJson as refused:
        told = str(refused)
        assert "too large a float" in told
        return
    digits, _, exponent = text.partition("e")
    whole, _, fraction = digits.partition(".")
    if exponent:
        assert int(whole + fraction) * 10 ** (int(exponent) - len(fraction)) == value


def test_where_it_is_wrong_is_told() -> None:
    """The path is Python's own."""
    with pytest.raises(NotJson, match=r"^payload\['a'\]\[1\]\['b'\] is a set: give what JSON has"):
        encode({"a": [0, {"b": {1}}]}, "payload")


@pytest.mark.parametrize("depth", [1, 100, 300])
def test_what_is_nested_is_taken(depth: int) -> None:
    """As deep as data goes."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    assert json.loads(encode(value, "payload")) == value


@pytest.mark.parametrize("depth", [2_000, 100_000])
def test_what_is_nested_too_deeply_is_refused(depth: int) -> None:
    """And does not take the process down."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    with pytest.raises(NotJson, match="nested too deeply"):
        encode(value, "payload")


def test_the_limit_is_in_bytes() -> None:
    """Not in characters."""
    assert len(encode("é" * ((LIMIT - 2) // 2), "value").encode()) == LIMIT
    with pytest.raises(NotJson, match=f"value is {LIMIT + 2} bytes"):
        encode("é" * (LIMIT // 2), "value")
