"""What workers say of themselves in shared memory: whole or not at all, and never harmful to who reads it."""

from __future__ import annotations

import faulthandler
import math
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.board import _RECORD, Board, Orders, Phase, Record

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
    """And a new page says that its worker is booting."""
    board = Board()
    assert board.read().phase is Phase.booting
    assert all(math.isnan(number) for number in board.read().progress)
    board.write(RECORD)
    assert board.read() == RECORD


def test_zeros_are_no_record() -> None:
    """The checksum of nothing is not nothing."""
    board = Board()
    board._memory[:] = bytes(len(board._memory))
    assert board.read() is None


def test_a_name_that_is_too_long_is_cut_and_nothing_else() -> None:
    """Whatever characters it has."""
    board = Board()
    board.write(RECORD._replace(kind="é" * 200, tenant="\ud800x"))
    read = board.read()
    assert read.kind == "é" * 32
    assert read._replace(kind="", tenant="") == RECORD._replace(kind="", tenant="")
    board.write(RECORD._replace(kind="x" + "é" * 200))
    assert board.read().kind.startswith("x" + "é" * 31)


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
    board = Board()
    board.write(record)
    assert board.read() == record


@given(records, records, st.integers(0, _RECORD.size + 4))
def test_a_half_written_record_is_never_read(old: Record, new: Record, cut: int) -> None:
    """A worker that dies in the middle of writing: the old record, the new one, or none."""
    board, other = Board(), Board()
    board.write(old)
    other.write(new)
    board._memory[:cut] = other._memory[:cut]
    assert board.read() in (None, old, new)


@given(st.lists(st.tuples(st.integers(0, 511), st.binary(min_size=1, max_size=64)), min_size=1, max_size=20))
def test_a_scribbled_record_is_none_or_a_valid_one(scribbles: list[tuple[int, bytes]]) -> None:
    """Whatever bytes a child puts anywhere: reading never raises."""
    board = Board()
    board.write(RECORD)
    for at, data in scribbles:
        fitting = data[: len(board._memory) - at]
        board._memory[at : at + len(fitting)] = fitting
    read = board.read()
    assert read is None or isinstance(read, Record)
    assert isinstance(board.orders, Orders)


@pytest.mark.parametrize("name", ["claimed_at", "max_runtime", "retry_in"])
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_time_that_is_no_number_is_not_believed(name: str, number: float) -> None:
    """A comparison with NaN is false: a run with such a start would have no max runtime."""
    board = Board()
    board.write(RECORD._replace(**{name: number}))
    assert board.read() is None


@pytest.mark.parametrize("byte", [0x00, 0xFF, 0x01])
def test_what_the_supervisor_has_said_stands_there_again_after_a_scribble(byte: int) -> None:
    """Neither must a scribble drain a worker nor take a drain back, and what is said later counts on from what was said."""
    board = Board()
    board.order(leave=True, stop=(7, "cancel"))
    board.wake()
    said = board.orders
    board._memory[:] = bytes([byte]) * len(board._memory)
    board.say_again()
    assert board.orders == said == Orders(wakes=1, leave=True, stop=(7, "cancel"))
    board.wake()
    assert board.orders == said._replace(wakes=2)


@pytest.mark.parametrize("name", ["drain", "leave", "pause"])
def test_each_order_stands_alone(name: str) -> None:
    """And is taken back alone."""
    board = Board()
    board.order(**{name: True})
    assert board.orders == Orders(**{name: True})
    board.wake()
    board.order(**{name: False})
    assert board.orders == Orders(wakes=1)


def test_a_later_worker_has_not_got_the_page_of_an_earlier_one() -> None:
    """It could scribble on it else. It dies where it tries."""
    earlier, own = Board(), Board()
    earlier.keep_from_others()
    assert _ends_by(lambda: own.write(RECORD)) == 0
    assert own.read() == RECORD
    assert _ends_by(lambda: earlier.write(RECORD)) == signal.SIGSEGV
    assert earlier.read().phase is Phase.booting


def _ends_by(act: Callable[[], None]) -> int:
    """Return the signal that ends a process which does this, or 0."""
    pid = os.fork()
    if pid == 0:
        faulthandler.disable()
        act()
        os._exit(0)
    return os.WTERMSIG(os.waitpid(pid, 0)[1])


@contextmanager
def a_writer(board: Board) -> Iterator[int]:
    """Fork a process that writes records as fast as it can: in each, all numbers are the same."""
    pid = os.fork()
    if pid == 0:
        number = 1
        while True:
            board.write(consistent(number))
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
    board = Board()
    board.write(consistent(1))
    seen = set()
    with a_writer(board):
        while len(seen) < 2_000:
            record = board.read()
            if record is not None:
                assert record == consistent(record.claim)
                seen.add(record.claim)


def test_a_writer_that_is_killed_at_any_instant_leaves_a_record_or_none() -> None:
    """C2: nothing shared is left locked or half sent."""
    board = Board()
    for _ in range(30):
        with a_writer(board):
            for _ in range(random.randrange(200)):
                board.read()
        record = board.read()
        assert record is None or record.phase is Phase.booting or record == consistent(record.claim)
        board.write(Record(Phase.booting))
