"""Make a session as new between two jobs, in one message, and tell what the first has left in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from psycopg import ClientCursor, Connection
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from fencepost.jobs.sql import message, statement

RESETS = ("reset_login", "reset_role", "reset_all")
"""Statements that have the settings of a new session."""

AS_NEW = ("forget", "as_new")
"""Statements that do the rest of what DISCARD ALL does, but for plans."""

WHO = ("the tenant", "a role")
"""What session_state.sql tells of besides settings."""

REPORTED = ("TimeZone", "DateStyle", "IntervalStyle", "client_encoding", "application_name", "default_transaction_read_only")
"""Settings that the server tells of by itself, whenever they change."""

STATE = 1
"""Where session_state.sql answers among the results of a message that begins with what `begins` has returned."""

BETWEEN_LOOKS = 1.0
"""Seconds between two looks at the functions of a database that speak for the time between them, too."""


def session_state(conn: Connection[Any], schema: str, tenant_setting: str) -> dict[str, str]:
    """Return what a session is like, in what another job would notice first, by what that is called."""
    cursor = conn.execute(statement("session_state", schema), {"tenant_setting": tenant_setting})
    return {**_row(cursor.pgresult), **_reported(conn)}


class Cleaning:
    """What makes one session as new between two jobs. Made with it, before any job has it.

    It travels in a message of its own, which `clean` sends; or, put off, in that which begins the next transaction.

    Plans are forgotten only where they may have in them what was set for a job, as `hold` answers at the end of each of its
    transactions: planning all anew takes longer than the rest. One look says only what the functions are like now, not what
    they were when the plan was made: so it counts where another, shortly before, has said the same.
    """

    def __init__(self, conn: Connection[Any], schema: str, tenant_setting: str) -> None:
        self._conn = conn
        self._schema = schema
        self._tenant_setting = tenant_setting
        self._as_new = session_state(conn, schema, tenant_setting)
        self._texts: dict[tuple[str, ...], bytes] = {}
        self._may_be_in_plans = 0
        self._looked_at = float("-inf")
        self._reported: dict[str, str] = {}
        self.owed: Callable[[str], None] | None = None

    # ---- at the ends of a transaction

    def begins(self) -> tuple[str, ...]:
        """Note that a transaction begins, and return the statements that come before it, in the same message."""
        first: tuple[str, ...] = ()
        if self.owed is not None:
            # In a transaction of its own: the job's may be rolled back, and with it would come back what was taken away.
            first = ("begin", *self._statements("session_state"), "end")
            self._reported = _reported(self._conn)
        # What is set in it may be in plans, unless its end says otherwise.
        self._may_be_in_plans += 1
        return first

    def travelled(self, state: PGresult | None) -> None:
        """Note that the cleaning has been done with a begin, and tell what was left: `state`, as session_state.sql answered."""
        tell, self.owed = self.owed, None
        self._may_be_in_plans = 1
        if tell is not None and (left := self._left({**_row(state), **self._reported})):
            tell(left)

    def committed(self, held: tuple[Any, ...] | None) -> None:
        """Note what `hold` has answered: whether what was set in the transaction may be in plans."""
        now = time.monotonic()
        if held is None or held[0]:
            self._looked_at = float("-inf")
            return
        if now - self._looked_at <= BETWEEN_LOOKS:
            self._may_be_in_plans -= 1
        self._looked_at = now

    # ---- behind a job

    def put_off(self, tell: Callable[[str], None]) -> None:
        """Have the next begin do it. `tell` is called with what was left, if anything."""
        self.owed = tell

    def clean(self, *, thoroughly: bool) -> str:
        """Make the session as new, and return in words what a job has left in it, '' for nothing.

        `thoroughly` looks for all that there may be, and not only for what another job would notice first.

        Raises psycopg.Error, and the session is to be given up.
        """
        self.owed = None
        self._reported = _reported(self._conn)
        verbs = self._statements("left_in_session" if thoroughly else "session_state")
        found = self._send(self._texts.get(verbs) or self._put_together(verbs))
        self._may_be_in_plans = 0
        return found["left"] if thoroughly else self._left({**found, **self._reported})

    def _statements(self, look: str) -> tuple[str, ...]:
        return (look, *AS_NEW, *(("forget_plans",) if self._may_be_in_plans else ()), *RESETS)

    def _left(self, found: dict[str, str]) -> str:
        if found == self._as_new:
            return ""
        # A server that has read its configuration again has changed settings, and no job has. Who it is that changes not: and
        # behind a begin it reads as the next one's already.
        who = {name: self._as_new[name] for name in WHO}
        self._as_new = {**session_state(self._conn, self._schema, self._tenant_setting), **who}
        return in_words([name for name, value in found.items() if value != self._as_new[name]])

    def _put_together(self, verbs: tuple[str, ...]) -> bytes:
        """Return a message, and keep it: put together each time it would take as long as the server does."""
        arguments = {"tenant_setting": self._tenant_setting, "role": self._as_new["a role"]}
        text = ClientCursor(self._conn).mogrify(message(self._schema, *verbs), arguments)
        self._texts[verbs] = text.encode(self._conn.info.encoding)
        return self._texts[verbs]

    def _send(self, text: bytes) -> dict[str, str]:
        """Send a message, and return what its first statement has answered, which is one row.

        It waits without a limit and without psycopg's loop around, as claims do: no code of a job's runs that could be stopped.
        """
        pgconn = self._conn.pgconn
        pgconn.send_query(text)
        results = []
        while (result := pgconn.get_result()) is not None:
            results.append(result)
        for result in results:
            if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
                raise error_from_result(result)
        return _row(results[0])


def in_words(names: list[str]) -> str:
    """Return what a job has left as `left_in_session` says it: settings, which are told by their names, behind who it was."""
    who = [name for name in WHO if name in names]
    settings = sorted(set(names) - set(WHO))
    return ", ".join(who + ([f"settings ({', '.join(settings)})"] if settings else []))


def _row(answer: PGresult | None) -> dict[str, str]:
    """Return the one row of an answer. What a job has left may be in an encoding that is no longer the session's."""
    if answer is None:
        return {}
    return {
        (answer.fname(column) or b"").decode(): (answer.get_value(0, column) or b"").decode(errors="replace")
        for column in range(answer.nfields)
    }


def _reported(conn: Connection[Any]) -> dict[str, str]:
    return {name: (conn.pgconn.parameter_status(name.encode()) or b"").decode(errors="replace") for name in REPORTED}
