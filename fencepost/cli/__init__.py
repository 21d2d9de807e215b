"""The command line.

Invariant: stdout only answers. An error is one line on stderr that says what to do, with an exit code that is not 0 and
without a traceback; whatever jobs have put into a text, it is shown and never interpreted.
"""

from __future__ import annotations

import sys
from importlib import import_module

import click
import psycopg

from fencepost.cli.base import UNUSABLE, WRONG, Refused, of_database
from fencepost.settings import WrongSettings

COMMANDS = {
    "run": "run.run",
    "check": "check.check",
    "migrate": "migrate.migrate",
    "enqueue": "enqueue.enqueue",
    "list": "jobs.list_jobs",
    "show": "jobs.show",
    "cancel": "by_hand.cancel",
    "retry": "by_hand.retry",
    "status": "status.status",
    "demo": "demo.demo",
}


class Commands(click.Group):
    """Loads the command that is called, and no other: each comes sooner so, and a supervisor is smaller."""

    def list_commands(self, _: click.Context) -> list[str]:
        """Return the names, in the order of a newcomer's day."""
        return list(COMMANDS)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        """Return a command, or None if there is none of that name."""
        if name not in COMMANDS:
            return None
        module, attribute = COMMANDS[name].split(".")
        command: click.Command = getattr(import_module(f"fencepost.cli.{module}"), attribute)
        return command


@click.group(cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fencepost", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> int:
    """Background jobs in PostgreSQL, each in a child process, under a parent that no job can take down.

    FENCEPOST_DATABASE_URL (or DATABASE_URL) says where the jobs are; further FENCEPOST_ variables set up `run`, whose
    --help lists them.

    \b
    Exit codes: 0   done; for `run`, drained clean
                75  the drain had to stop jobs
                70  no worker can start
                78  settings, schema or rights are wrong
                2   the command was given something it can't take
                1   anything else: the line on stderr says what
    """  # noqa: D301  # click's own mark for lines that it must not wrap
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        return 2
    return 0


def main() -> None:
    """Run the command that the arguments name, and leave with its exit code. Raises KeyboardInterrupt on Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = cli.main(prog_name="fencepost", standalone_mode=False)
    except WrongSettings as wrong:
        click.echo(str(wrong), err=True)
        code = WRONG
    except psycopg.Error as error:
        code = _fail(of_database(error))
    except UnicodeEncodeError:
        # Not shown: it may be an address with its password.
        code = _fail(Refused("an argument or a variable is no text: it holds bytes that are not UTF-8", UNUSABLE))
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.ClickException as error:
        code = _fail(error)
    sys.exit(code or 0)


def _fail(error: click.ClickException) -> int:
    from fencepost.cli.output import visible  # noqa: PLC0415  # as the commands

    text = " ".join(error.format_message().split())
    if isinstance(error, click.UsageError) and error.ctx is not None:
        text = f"{text.rstrip('.')}: see `{error.ctx.command_path} --help`"
    click.echo(f"fencepost: {visible(text)}", err=True)
    return error.exit_code
