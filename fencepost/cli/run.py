"""`fencepost run`: the container's entrypoint."""

from __future__ import annotations

import click

from fencepost import settings as settings_module


@click.command()
def run() -> int:
    """Run the supervisor with its workers, until it is drained.

    TERM or INT drains: running jobs finish, nothing new is claimed. Again, a second or more later, stops running jobs; a
    third time, or QUIT, kills them. It waits for a database that is away and for a schema that is not there yet; anything
    else that `fencepost check` refuses ends it with 78, and handlers that don't import with 70. Logs go to stderr.
    """
    settings = settings_module.read(need_handlers=True)
    # The other commands need neither logs nor processes, and come quicker without.
    from fencepost import logs  # noqa: PLC0415
    from fencepost.supervisor.main import run as supervise  # noqa: PLC0415

    logs.configure(settings)
    return supervise(settings)
