"""`fencepost demo`: see it survive."""

from __future__ import annotations

import click


@click.command()
def demo() -> int:
    """See it survive: a hundred tenants' jobs and four bad ones, on a PostgreSQL of its own.

    Needs no database, only the extra `fencepost[embedded]`. It starts an embedded PostgreSQL in a temporary folder,
    loads 100 tenants and their invoices under row-level security, and runs the supervisor on a job for each tenant,
    with a job that raises, one that kills its process, one that hangs in C and one that outlives its lease among them.
    It shows live, then as a table, what became of each, and leaves nothing behind.
    """
    from fencepost.demo.main import run  # noqa: PLC0415  # it needs what the other commands do not

    return run()
