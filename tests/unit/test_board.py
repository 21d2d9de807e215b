"""What workers say of themselves in shared memory: whole or not at all, and never harmful to who reads it."""

from __future__ import annotations

import math
import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.board import _RECORD, _SLOT_SIZE, Board, Phase, Record

RECORD = Record(
    Phase.running,
    claim=7,
    job_id=42,
    fence=3,
    attempt=2,
    max_attempts=5,
    claimed_at=12.5,
    max_runtime=300.0,
    retry_in=15.0,
    progress=(3.0, 10.0),
    kind="invoice.count",
    tenant="7",
)


def test_what_is_written_is_read() -> None:
    """In its slot, and only there."""
    board = Board(3)
    for slot in (1, 2, 3):
        board.clear(slot)
    board.write(2, RECORD)
    assert board.read(2) == RECORD
    assert board.read(1).phase is board.read(3).phase is Phase.booting


def test_a_new_slot_has_nothing_to_say() -> None:
    """Zeros are no record."""
    board = Board(1)
    assert board.read(1) is None
    board.clear(1)
    assert board.read(1).phase is Phase.booting
    assert all(math.isnan(number) for number in board.read(1).progress)


def test_a_name_that_is_too_long_is_cut_and_nothing_else() -> None:
    """Whatever characters it has."""
    board = Board(2)
    board.write(1, replace(RECORD, kind="é" * 200, tenant="\ud800x"))
    read = board.read(1)
    assert read.kind == "é" * 32
    assert replace(read, kind="", tenant="") == replace(RECORD, kind="", tenant="")
    board.write(1, replace(RECORD, kind="x" + "é" * 200))
    assert board.read(1).kind.startswith("x" + "é" * 31)


records = st.builds(
    Record,
    phase=st.sampled_from(Phase),
    claim=st.integers(0, 2**64 - 1),
    job_id=st.integers(-(2**63), 2**63 - 1),
    fence=st.integers(0, 2**63 - 1),
    attempt=st.integers(0, 2**31 - 1),
    max_attempts=st.integers(0, 2**31 - 1),
    claimed_at=st.floats(allow_nan=False, allow_infinity=False),
    max_runtime=st.floats(allow_nan=False, allow_infinity=False),
    retry_in=st.floats(allow_nan=False, allow_infinity=False),
    progress=st.tuples(st.floats(allow_nan=False), st.floats(allow_nan=False)),
    kind=st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=16),
    tenant=st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=16),
)


@given(records)
def test_any_record_survives(record: Record) -> None:
    """At the edges of its numbers too."""
    board = Board(1)
    board.write(1, record)
    assert board.read(1) == record


@given(records, records, st.integers(0, _RECORD.size + 4))
def test_a_half_written_record_is_never_read(old: Record, new: Record, cut: int) -> None:
    """A worker that dies in the middle of writing: the old record, the new one, or none."""
    board, other = Board(1), Board(1)
    board.write(1, old)
    other.write(1, new)
    at = _SLOT_SIZE
    board._memory[at : at + cut] = other._memory[at : at + cut]
    assert board.read(1) in (None, old, new)


@given(st.lists(st.tuples(st.integers(0, 2 * _SLOT_SIZE - 1), st.binary(min_size=1, max_size=64)), min_size=1, max_size=20))
def test_a_scribbled_record_is_none_or_a_valid_one(scribbles: list[tuple[int, bytes]]) -> None:
    """Whatever bytes a child puts anywhere: reading never raises."""
    board = Board(1)
    board.write(1, RECORD)
    for at, data in scribbles:
        fitting = data[: len(board._memory) - at]
        board._memory[at : at + len(fitting)] = fitting
    read = board.read(1)
    assert read is None or isinstance(read, Record)
    claim, reason = board.asked_to_stop(1)
    assert claim >= 0
    assert reason in (None, "max_runtime", "drain", "cancel", "lease")
    assert board.wakes >= 0
    assert board.draining in (True, False)


@pytest.mark.parametrize("name", ["claimed_at", "max_runtime", "retry_in"])
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_time_that_is_no_number_is_not_believed(name: str, number: float) -> None:
    """A comparison with NaN is false: a run with such a start would have no max runtime."""
    board = Board(1)
    board.write(1, replace(RECORD, **{name: number}))
    assert board.read(1) is None


@pytest.mark.parametrize("byte", [0x00, 0xFF, 0x01])
def test_the_supervisor_goes_on_after_a_child_has_scribbled_over_everything(byte: int) -> None:
    """What it writes must not fail on what a child left there, and what it has said stands there again."""
    board = Board(2)
    for slot in (1, 2):
        board.clear(slot)
    board.wake()
    before = board.wakes
    board._memory[:] = bytes([byte]) * len(board._memory)
    for slot in (1, 2):
        board.ask_to_stop(slot, 5, "cancel")
        board.clear(slot)
        assert board.read(slot).phase is Phase.booting
        assert board.asked_to_stop(slot) == (0, None)
    board.wake()
    assert board.wakes == before + 1
    assert not board.draining, "a child's scribble has made every worker leave"
    board.drain()
    assert board.draining


def test_a_scribble_does_not_take_back_a_drain() -> None:
    """Else workers would claim again while the supervisor leaves."""
    board = Board(1)
    board.drain()
    board._memory[:] = bytes(len(board._memory))
    board.wake()
    assert board.draining


def test_wakes_are_counted_and_leave_the_drain_alone() -> None:
    """A worker compares the count around its look."""
    board = Board(1)
    for count in range(1, 4):
        board.wake()
        assert board.wakes == count
    assert not board.draining
    board.drain()
    board.wake()
    assert (board.wakes, board.draining) == (4, True)


def test_an_order_to_stop_names_its_claim() -> None:
    """So that no other claim of the slot stops."""
    board = Board(2)
    board.ask_to_stop(1, 7, "cancel")
    assert board.asked_to_stop(1) == (7, "cancel")
    assert board.asked_to_stop(2) == (0, None)
    board.clear(1)
    assert board.asked_to_stop(1) == (0, None)


@contextmanager
def a_writer(board: Board, slot: int) -> Iterator[int]:
    """Fork a process that writes records as fast as it can: in each, all numbers are the same."""
    pid = os.fork()
    if pid == 0:
        number = 1
        while True:
            board.write(slot, consistent(number))
            number = number % 1_000_000 + 1
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def consistent(number: int) -> Record:
    text = str(number) * 8
    return Record(
        Phase.running, number, number, number, number, number, float(number), float(number), float(number),
        (float(number), float(number)), text, text,
    )  # fmt: skip


def test_a_reader_never_sees_half_of_what_another_process_writes() -> None:
    """Read while it is written: each record that is read is one that was written."""
    board = Board(2)
    board.write(2, consistent(1))
    seen = set()
    with a_writer(board, 2):
        while len(seen) < 2_000:
            record = board.read(2)
            if record is not None:
                assert record == consistent(record.claim)
                seen.add(record.claim)


def test_a_writer_that_is_killed_at_any_instant_leaves_a_record_or_none() -> None:
    """C2: nothing shared is left locked or half sent."""
    board = Board(1)
    board.clear(1)
    for _ in range(30):
        with a_writer(board, 1):
            for _ in range(random.randrange(200)):
                board.read(1)
        record = board.read(1)
        assert record is None or record.phase is Phase.booting or record == consistent(record.claim)
        board.clear(1)
        assert board.read(1).phase is Phase.booting
