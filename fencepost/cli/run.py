"""`fencepost run`: the container's entrypoint."""

from __future__ import annotations

import click

from fencepost.cli.base import settings_with_handlers


@click.command()
def run() -> int:
    """Run the supervisor with its workers, until it is drained.

    TERM or INT drains: running jobs finish, nothing new is claimed. Again stops running jobs, a third time or QUIT
    kills them. HUP restarts the workers one by one, TTIN and TTOU make one more or one fewer, TSTP and CONT stop and
    resume claiming, USR1 logs what every slot does. It waits for a database that is away and for a schema that is not
    there yet; anything else that `fencepost check` refuses ends it with 78. Logs go to stderr.
    """
    settings = settings_with_handlers()
    # The other commands need neither logs nor processes, and come quicker without.
    from fencepost import logs  # noqa: PLC0415
    from fencepost.supervisor.main import run as supervise  # noqa: PLC0415

    logs.configure(settings)
    return supervise(settings)
