"""Ten thousand hostile jobs of a hundred tenants on four workers, directly and through PgBouncer: `make hostile`, JOBS= SEED=.

And the same with the tenant set for the session, and with sessions that are not cleaned: both must be found.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from support import hostile_run
from support.databases import Database
from support.jobs import Jobs
from support.poolers import Pooler
from support.processes import Supervisor

JOBS = int(os.environ.get("JOBS", "10000"))
SEED = int(os.environ.get("SEED") or random.randrange(1 << 32))

BREAK = """
from fencepost.jobs import sql

whole = sql.in_schema
sql.in_schema = lambda text, schema: whole(text.replace({text!r}, {instead!r}), schema)
"""
BROKEN = {
    "the tenant is set for the session": (
        "'fencepost_job.tenant'), %(tenant)s, true)",
        "'fencepost_job.tenant'), %(tenant)s, false)",
    ),
    "sessions are not cleaned": ("reset all", "select 1"),
}


def hostile(
    start: Callable[..., Supervisor], jobs: Jobs, database: Database, count: int, url: str | None = None, **options: object
) -> None:
    """Run hostile jobs on four workers; `url` is that of a pooler."""
    role = hostile_run.prepare(database)
    known = {"handlers": "hostile", "concurrency": 4, "backoff": "0.1s", "log_level": "info", **options}
    supervisor = start(url or database.worker_url, **known)
    try:
        ended = hostile_run.run(
            database, jobs, supervisor, role, count=count, seed=SEED, within=count / 10 + 60, pooled=url is not None
        )
    finally:
        supervisor.stop()
        hostile_run.forget(database, role)
    print(f"SEED={SEED}: {dict(sorted(ended.items()))}")


@pytest.mark.timeout(0)
def test_nothing_of_one_tenant_reaches_another(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever they leave in their sessions."""
    with capsys.disabled():
        hostile(start_supervisor, jobs, database, JOBS)


@pytest.mark.timeout(0)
def test_nor_does_it_through_a_pooler(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of PgBouncer's, where one session serves all of them in turn."""
    pooler = Pooler(database, default_pool_size=3)
    try:
        with capsys.disabled():
            hostile(start_supervisor, jobs, database, JOBS, pooler.url(), pooler="transaction", poll="0.2s")
    finally:
        pooler.close()


@pytest.mark.timeout(0)
@pytest.mark.parametrize("broken", BROKEN)
def test_a_product_that_leaks_is_found(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database, broken: str
) -> None:
    """By the same jobs."""
    text, instead = BROKEN[broken]
    with pytest.raises(AssertionError, match=r"what was not theirs|looks_at_its_session"):
        hostile(
            start_supervisor,
            jobs,
            database,
            min(JOBS, 500),
            files={"sitecustomize.py": BREAK.format(text=text, instead=instead)},
        )
