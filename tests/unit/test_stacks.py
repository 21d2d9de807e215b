"""What is kept of a process' stacks."""

from __future__ import annotations

import os

import pytest

from fencepost.supervisor.stacks import crash_text, stack_text

TOLD = 'Thread MainThread (most recent call first):\n  File "first.py", line 1 in of_the_first_tenant\n\n'
CRASHED = (
    "Fatal Python error: Segmentation fault\n\n"
    'Current thread 0x01 (most recent call first):\n  File "second.py", line 2 in of_the_second_tenant\n'
    '  File "/lib/fencepost/worker/run.py", line 3 in _value\n  File "/lib/fencepost/worker/loop.py", line 4 in work\n'
)


@pytest.mark.parametrize(("text", "kept"), [("", False), (TOLD, False), (CRASHED, True), (TOLD + CRASHED, True)])
def test_a_crash_is_told_by_what_it_has_left_itself(text: str, *, kept: bool) -> None:
    """And not by what was told before, to whoever asked: that may be of another tenant's job."""
    fd = os.memfd_create("stacks")
    os.write(fd, text.encode())
    found = crash_text(fd)
    os.close(fd)
    assert (found is not None) == kept
    assert "of_the_second_tenant" in (found or "of_the_second_tenant")
    assert "of_the_first_tenant" not in (found or "")
    assert "fencepost" not in (found or "")


def test_the_connection_that_a_job_waits_on_is_not_where_its_stack_ends() -> None:
    """Our code above it is left out, and what calls it ends it."""
    fd = os.memfd_create("stacks")
    lines = ("psycopg/connection.py", "fencepost/worker/connection.py", "invoices.py", "fencepost/worker/run.py", "main.py")
    text = "Thread MainThread (most recent call first):\n" + "".join(f'  File "/lib/{name}", line 1 in f\n' for name in lines)
    os.write(fd, text.encode())
    found = stack_text(fd) or ""
    os.close(fd)
    assert [name for name in lines if name in found] == ["psycopg/connection.py", "invoices.py"]
