"""How a worker waits for a database that is away: without end, at random intervals, and saying so once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import psycopg
import structlog
import tenacity

from fencepost.worker.errors import SUMMARY, clean
from fencepost.worker.line import Line
from fencepost.worker.session import USELESS, Session

log = structlog.get_logger()

Answer = TypeVar("Answer")

BETWEEN_TRIES = tenacity.wait_random(1, 3)
"""Seconds between two tries, at random: a hundred workers must not come back in one instant."""


class Patience:
    """What a worker has with its database. The supervisor ends the worker when it has had enough for the job's lease."""

    def __init__(self, session: Session, line: Line) -> None:
        self._session = session
        self._line = line
        self._trouble = ""

    def until_answered(self, verb: str, act: Callable[[], Answer]) -> Answer:
        """Do `act` until the database has answered. Raises DataError or IntegrityError: a no to what it was given."""
        while True:
            try:
                answer = act()
            except (psycopg.DataError, psycopg.IntegrityError):
                raise
            except psycopg.Error as error:
                self.note(verb, error)
                self._session.drop_claims()
                self.pause()
            else:
                self.answered()
                return answer

    def pause(self) -> None:
        """Wait before the database is asked again."""
        self._line.sleep(BETWEEN_TRIES(tenacity.RetryCallState(tenacity.Retrying(), None, (), {})))

    def note(self, verb: str, error: Exception) -> None:
        """Log trouble, once until it is another."""
        text = clean(str(error).strip(), SUMMARY)
        if text != self._trouble:
            self._trouble = text
            log.warning("the database did not answer as it should; trying again", verb=verb, error=text)

    def answered(self) -> None:
        """Note that all is well."""
        self._trouble = ""


def is_an_answer(error: Exception) -> bool:
    """Whether the server has answered, with a no: then what was sent has not been done. Any other error leaves that open."""
    return (
        isinstance(error, psycopg.Error) and not isinstance(error, psycopg.OperationalError) and error.sqlstate not in USELESS
    )
