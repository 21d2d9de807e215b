"""Have hostile jobs of a hundred tenants run in random order, and prove that nothing of one reached another."""

from __future__ import annotations

import json
import random
from collections import Counter

from psycopg.types.json import Jsonb

from support.databases import Database
from support.hostile import ENDS, TABLES, WAYS
from support.jobs import Jobs
from support.processes import Supervisor
from support.waiting import wait_until

TENANTS = 100
DIES_IN = 40
"""One of so many jobs ends in each way that is not to return; a death costs a worker."""

ENQUEUE = """
    select count(fencepost.enqueue('hostile', one.payload, tenant => one.tenant, max_attempts => 1))
    from unnest(%s::jsonb[], %s::text[]) one (payload, tenant)
"""
AT_REST = "select count(*) from fencepost.jobs where kind = 'hostile' and status in ('done', 'dead')"
WRONG = """
    select e.job, e.tenant_id, j.tenant_id as of from test.effects e join fencepost.jobs j on j.id = e.job
    where e.tenant_id::text <> j.tenant_id
"""


def prepare(database: Database, *, role: bool = True) -> str:
    """Make the tables and, if it is wanted, a role that the worker's login may take on; return its name."""
    database.execute(TABLES)
    return _make_role(database) if role else ""


def _make_role(database: Database) -> str:
    role = f"other_{database.name}"
    database.execute(
        f"""
        create role {role};
        grant {role} to {database.worker};
        grant usage on schema test, fencepost to {role};
        grant execute on function fencepost.hold, fencepost.finish to {role};
        """
    )
    return role


def forget(database: Database, role: str) -> None:
    """Drop the role: it is the server's, not the database's."""
    database.execute(f"drop owned by {role}; drop role {role}")


def run(
    database: Database,
    jobs: Jobs,
    supervisor: Supervisor,
    role: str,
    *,
    count: int,
    seed: int,
    within: float,
    pooled: bool = False,
) -> Counter[str]:
    """Run `count` hostile jobs, and return how many came to rest as what.

    Asserts that nothing crossed and, unless behind a pooler, that what was left was named, and nothing where nothing was.
    """
    chance, findings = random.Random(seed), supervisor.folder / "findings"
    findings.touch()
    findings.chmod(0o666)
    clean = jobs.wait_for(jobs.enqueue("looks_at_its_session")).result
    harmless = [jobs.enqueue("looks_at_its_session", tenant=tenant) for tenant in range(1, 11)]
    ends = [end for end in ENDS if end != "returns"]
    payloads = [
        Jsonb(
            {
                # Each way at least once.
                "way": [*WAYS][number] if number < len(WAYS) else chance.choice([*WAYS]),
                "ends": chance.choice(ends) if chance.randrange(DIES_IN) < len(ends) else "returns",
                "twice": chance.random() < 0.3,
                "clean": clean,
                "file": str(findings),
                "role": role,
            }
        )
        for number in range(count)
    ]
    chance.shuffle(payloads)
    database.execute(ENQUEUE, [payloads, [str(chance.randint(1, TENANTS)) for _ in payloads]])
    wait_until(lambda: database.value(AT_REST) == count, within=within, what="the end of all hostile jobs")
    found = [json.loads(line) for line in findings.read_text(encoding="utf-8").splitlines()]
    assert found == [], f"{len(found)} jobs found what was not theirs, the first: {found[0]}"
    assert database.execute(WRONG) == []
    assert [jobs.wait_for(job).result for job in harmless] == [clean] * len(harmless)
    named = [line for line in supervisor.logs() if "left something in its session" in line["event"]]
    assert {line["kind"] for line in named} == (set() if pooled else {"hostile"}), named[:1]
    rows = database.execute("select status || ' ' || (payload ->> 'ends') as what from fencepost.jobs where kind = 'hostile'")
    return Counter(row.what for row in rows)
