"""`fencepost run`: the container's entrypoint."""

from __future__ import annotations

import click

from fencepost import settings as settings_module
from fencepost.cli import settings_page


class WithSettings(click.Command):
    """A command whose help ends with all settings."""

    def format_epilog(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """Write them as click writes options."""
        with formatter.section("Settings"):
            formatter.write_dl(settings_page.for_help())


@click.command(cls=WithSettings, context_settings={"max_content_width": 140})
def run() -> int:
    """Run the supervisor with its workers, until it is drained.

    It waits for a database that is away and for a schema that is not there yet; anything else that `fencepost check`
    refuses ends it with 78, and handlers that don't import with 70. Logs go to stderr.
    It takes no options: the environment variables below set it up, and `fencepost check` tries them.

    \b
    Signals: TERM, INT   drain: running jobs finish, nothing new is claimed;
                         again, a second or more later: stop running jobs;
                         a third time: kill them
             QUIT        kill running jobs now
             HUP         replace the workers, one at a time, each after its job:
                         they import the handlers anew
             TTIN, TTOU  one worker more, one fewer
             TSTP, CONT  claim nothing, claim again
             USR1        log what every slot does, with stacks
    """  # noqa: D301  # click's own mark for lines that it must not wrap
    settings = settings_module.read(need_handlers=True)
    # The other commands need neither logs nor processes, and come quicker without.
    from fencepost.supervisor.init import stand_in_front  # noqa: PLC0415  # nor this

    # Before anything is loaded that PID 1 has no use for.
    stand_in_front(settings)
    from fencepost import logs  # noqa: PLC0415
    from fencepost.supervisor.main import run as supervise  # noqa: PLC0415

    logs.configure(settings)
    return supervise(settings)
