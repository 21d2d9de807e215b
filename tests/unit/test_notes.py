"""What a child writes of its start: no bytes of it harm the supervisor, or what it asks the database for."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.supervisor.restart import kinds_of, read_note, refusal_in

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["kinds", "refused", "error"]) | st.text(), inner),
)


@pytest.fixture(scope="module")
def note() -> Iterator[int]:
    """A file like the one that a child has."""
    fd = os.memfd_create("note")
    yield fd
    os.close(fd)


def read(note: int, written: bytes) -> dict[str, object]:
    os.ftruncate(note, 0)
    os.pwrite(note, written, 0)
    return read_note(SimpleNamespace(note=note))  # type: ignore[arg-type]  # all that is read of a child


@given(st.binary() | st.builds(lambda value: json.dumps(value).encode(), ANYTHING))
def test_any_note_is_read_and_its_kinds_can_be_sent(note: int, written: bytes) -> None:
    """Whatever it is: no error, and only kinds that the database can be asked for."""
    found = read(note, written)
    refusal_in(found)
    for kind in kinds_of(found) or []:
        assert 0 < len(kind.encode()) <= 256
        assert "\0" not in kind


def test_half_a_surrogate_pair_is_no_kind(note: int) -> None:
    """JSON can say it, and text can't be sent with it."""
    assert kinds_of(read(note, rb'{"kinds": ["good", "\ud800", "what?", 7, "", "\u0000"]}')) == ["good", "what?"]


@pytest.mark.parametrize("written", [b"[" * 1_000_000, b"9" * 1_000_000, b'{"kinds": ' + b"[" * 100_000])
def test_a_note_that_is_a_bomb_is_an_empty_one(note: int, written: bytes) -> None:
    """Neither depth nor length costs the supervisor anything."""
    assert read(note, written) == {}
