"""Writing a log line never blocks, and what was not taken is told.

Each case is a process of its own, whose stderr is what the test makes of it.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from textwrap import dedent

import pytest

BEGIN = """
import json, os, sys, time
from fencepost.logs import sink
def say(**what): print(json.dumps(what), flush=True)
"""


def start(script: str, stderr: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BEGIN + dedent(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def told(process: subprocess.Popen[str]) -> dict[str, object]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"it ended with {process.wait()}"
    return dict(json.loads(line))


FLOOD = """
    {own}
    began = time.monotonic()
    for number in range(2000):
        sink.write(f"line {{number}} " + "x" * {size} + "\\n")
    say(took=time.monotonic() - began)
    sys.stdin.readline()
    sink.write("after the flood\\n")
    say(done=True)
"""


@pytest.mark.parametrize("own", ["sink.own_description()", ""], ids=["the supervisor's", "a worker's"])
@pytest.mark.parametrize("size", [10, 20_000])
def test_a_reader_that_does_not_read_stops_nobody(own: str, size: int) -> None:
    """2,000 lines into a full pipe: no time is lost, the lines are, and their number is told once there is room."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 16 * 1024)
    process = start(FLOOD.format(own=own, size=size), writing)
    os.close(writing)
    with process, os.fdopen(reading, "rb") as reader:
        took = told(process)["took"]
        assert isinstance(took, float)
        assert took < 5
        os.set_blocking(reading, False)
        before = reader.read() or b""
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert told(process) == {"done": True}
        process.stdin.close()
        os.set_blocking(reading, True)
        after = (reader.read() or b"").decode()
    whole = [line for line in before.decode().splitlines() if line.startswith("line ") and len(line) >= size]
    notice = f"fencepost: {2000 - len(whole)} log lines were dropped"
    assert notice in after
    assert after.index(notice) < after.index("after the flood")


def test_a_line_that_was_taken_in_part_does_not_spoil_the_next() -> None:
    """Each line of a log is read as JSON: a torn one may be lost, but not what follows it."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 16 * 1024)
    script = """
        sink.own_description()
        for number in range(5):
            sink.write(json.dumps({"number": number, "text": "x" * 10_000}) + "\\n")
        say(done=True)
        sys.stdin.readline()
        sink.write(json.dumps({"last": True}) + "\\n")
        say(done=True)
    """
    process = start(script, writing)
    os.close(writing)
    with process, os.fdopen(reading, "rb") as reader:
        told(process)
        os.set_blocking(reading, False)
        text = reader.read() or b""
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        told(process)
        process.stdin.close()
        os.set_blocking(reading, True)
        text += reader.read() or b""
    assert text.decode().splitlines()[-1] == '{"last": true}'
    assert any(line.startswith("fencepost: ") for line in text.decode().splitlines())


@pytest.mark.parametrize("own", ["sink.own_description()", ""], ids=["the supervisor's", "a worker's"])
def test_a_reader_that_is_gone_ends_nobody(own: str) -> None:
    """E10: no SIGPIPE, no error."""
    reading, writing = os.pipe()
    process = start(f"{own}\nsys.stdin.readline()\nfor _ in range(100): sink.write('x\\n')\nsay(done=True)", writing)
    os.close(writing)
    os.close(reading)
    with process:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert told(process) == {"done": True}
    assert process.returncode == 0


@pytest.mark.parametrize("own", ["sink.own_description()", ""], ids=["the supervisor's", "a worker's"])
def test_a_closed_stderr_ends_nobody(own: str) -> None:
    """E8: a job closes 2."""
    process = start(
        f"{own}\nos.closerange(2, 100)\nfor _ in range(100): sink.write('x\\n')\nsay(done=True)", subprocess.DEVNULL
    )
    with process:
        assert told(process) == {"done": True}
    assert process.returncode == 0


def test_the_pipe_of_others_stays_as_it_was() -> None:
    """What is non-blocking is our own description: a job that prints to the same pipe must not get EAGAIN."""
    reading, writing = os.pipe()
    process = start("sink.own_description()\nsink.write('x\\n')\nsay(blocking=os.get_blocking(2))", writing)
    with process:
        assert told(process) == {"blocking": True}
    assert os.get_blocking(writing)
    assert os.read(reading, 10) == b"x\n"
    os.close(reading)
    os.close(writing)


def test_a_file_is_written_in_turns_with_others(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """A description of our own would write over what a job has printed."""
    file = tmp_path / "log"
    with file.open("wb") as stderr:
        script = """
            sink.own_description()
            for number in range(3):
                sink.write(f"ours {number}\\n")
                os.write(2, f"theirs {number}\\n".encode())
            say(done=True)
        """
        with start(script, stderr.fileno()) as process:
            told(process)
    assert file.read_text().splitlines() == [f"{who} {number}" for number in range(3) for who in ("ours", "theirs")]
