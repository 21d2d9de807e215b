"""A job's transactions in a session of the test's own, which nobody cleans."""

from __future__ import annotations

from typing import Any

from fencepost.jobs.transaction import Transactions


class NotCleaned:
    """In the place of a Cleaning."""

    def begins(self) -> tuple[str, ...]:
        """Put nothing in front of a begin."""
        return ()

    def committed(self, held: tuple[Any, ...] | None) -> None:
        """Note nothing."""


_ours = Transactions()
_ours.cleaning = NotCleaned()  # type: ignore[assignment]  # as much of one as these use

begin = _ours.begin
commit = _ours.commit
finish_and_commit = _ours.finish_and_commit
