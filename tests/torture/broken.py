"""The product, broken on purpose: `python -m torture.broken NAME run` is `fencepost run` with one statement changed."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from fencepost.__main__ import main
from fencepost.jobs import sql


@dataclass(frozen=True)
class Breakage:
    """In the statements, `text` becomes `instead`."""

    text: str
    instead: str


BREAKAGES = {
    # A commit does not ask whether the run still holds its job.
    "fence": Breakage("select fencepost.hold(%(job_id)s, %(fence)s, %(name)s);\n", "select false;\n"),
    # A heartbeat prolongs a job whoever holds it, and so tells nobody that it is lost.
    "heartbeat": Breakage("j.id = beat.id and j.fence = beat.fence and j.locked_by = beat.name and", "j.id = beat.id and"),
    # An attempt is not counted by the claim. (No less than one: the table refuses it.)
    "count": Breakage("attempts = j.attempts + 1,", "attempts = greatest(j.attempts, 1),"),
    # The tenant is set for the session, and not for the transaction.
    "tenant": Breakage("'fencepost_job.tenant'), %(tenant)s, true)", "'fencepost_job.tenant'), %(tenant)s, false)"),
}


def break_it(name: str) -> None:
    """Change the statements as they are loaded, in this process and all it forks."""
    whole, breakage = sql.in_schema, BREAKAGES[name]

    def in_schema(text: str, schema: str) -> object:
        return whole(text.replace(breakage.text, breakage.instead), schema)

    sql.in_schema = in_schema  # type: ignore[assignment]


if __name__ == "__main__":
    break_it(sys.argv.pop(1))
    sys.exit(main())
