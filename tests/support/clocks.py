"""A wall clock of a supervisor's own, wrong by as much as a test says. What it measures lengths by stays right: libfaketime."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from support.processes import Supervisor

LIBRARY = "libfaketime.so.1"


class Clock:
    """A clock that is `shift` seconds ahead, and may be set while it is read."""

    def __init__(self, file: Path, shift: int) -> None:
        self._file = file
        self.set(shift)
        (library,) = Path("/usr/lib").glob(f"*/faketime/{LIBRARY}")
        self.environment: Mapping[str, str] = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, shift: int) -> None:
        """Set it, at once for whoever reads it."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{shift:+d}\n", encoding="ascii")
        new.replace(self._file)

    def seen_by(self, supervisor: Supervisor) -> float:
        """Return the shift that the supervisor's last log line shows."""
        return self.shift_of(supervisor.logs()[-1])

    @staticmethod
    def shift_of(line: Mapping[str, Any]) -> float:
        """Return by how much a log line that was written just now is ahead."""
        moment = datetime.fromisoformat(str(line["time"]))
        return (moment - datetime.now(UTC)).total_seconds()
