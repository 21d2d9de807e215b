"""A tenant that is left on a pooled connection."""

from __future__ import annotations

from psycopg_pool import ConnectionPool

from article.designs.pooled import DESIGNS, Failed, Pool, count
from article.lab import Facts, Lab, wait_for
from article.page import Section, number
from fencepost import enqueue
from support.databases import Database

TITLE = "The tenant that stays on the connection"

JOBS = ((1, False), (2, True), (3, False))
"""Each tenant's job, and whether it fails."""


def measure(lab: Lab) -> Facts:
    """Run the three jobs on one connection; after each, count on it with nothing set."""
    facts: Facts = {"first tenant": lab.first_tenant, "rows": {}}
    with lab.database() as database:
        for name, (job, autocommit) in DESIGNS.items():
            with ConnectionPool(database.worker_url, min_size=1, max_size=1, kwargs={"autocommit": autocommit}) as pool:
                facts["rows"][name] = [_after(pool, job, tenant, fails=fails) for tenant, fails in JOBS]
        facts["rows"]["Fencepost"] = _fencepost(lab, database, sets_its_session=False)
        facts["rows"]["Fencepost, and the job sets its session"] = _fencepost(lab, database, sets_its_session=True)
    return facts


def _after(pool: Pool, job: object, tenant: int, *, fails: bool) -> int:
    assert callable(job)
    try:
        job(pool, tenant, fails=fails)
    except Failed:
        pass
    with pool.connection() as conn:
        return count(conn)


def _fencepost(lab: Lab, database: Database, *, sets_its_session: bool) -> list[int]:
    """Run the jobs, and after each one without a tenant, in one worker and so in one session."""
    found = []
    with lab.supervisor(database.worker_url, max_attempts=1) as supervisor:
        for tenant, fails in JOBS:
            payload = {"fails": fails, "for_the_session": str(tenant) if sets_its_session else ""}
            wait_for(database, enqueue(database.owner, "count", payload, tenant=tenant))
            after = enqueue(database.owner, "count")
            wait_for(database, after)
            found.append(database.value("select result from fencepost.jobs where id = %s", [after]))
        assert supervisor.is_alive()
    return found


def tell(facts: Facts) -> Section:
    """Tell of it."""
    rows = facts["rows"]
    leaked, autocommit, local, fencepost, harder = (
        rows[name] for name in (*DESIGNS, "Fencepost", "Fencepost, and the job sets its session")
    )
    clean = not any([*fencepost, *harder])
    return Section(
        article="a session setting outlives a job that succeeds (20,000 invoices of tenant 1); one that fails takes its own "
        "tenant back, and the earlier one still stands; in autocommit the failing job's tenant stays, too; a local setting "
        "leaves nothing.",
        here=f"after a job of tenant 1 the next user of the connection, who has set nothing, sees {number(leaked[0])} "
        f"invoices, and after tenant 2's has failed {number(leaked[1])}, in autocommit {number(autocommit[1])}; with a local "
        f"setting {number(max(local))}.",
        fencepost="sets the tenant locally in each of a job's transactions, and makes the session as new after each job: the "
        "next "
        + ("one sees none, even if the job has set its session itself." if clean else f"ones see {fencepost} and {harder}."),
        head=[
            "invoices seen by the next user, nothing set",
            "after tenant 1, done",
            "after tenant 2, failed",
            "after tenant 3, done",
        ],
        rows=[[name, *map(number, seen)] for name, seen in rows.items()],
    )
