"""The database of Fencepost, and of the bare SQL on the same tables: a plain login, a hundred tenants, their jobs."""

from __future__ import annotations

import sys

import psycopg
import stamps

from fencepost.jobs.roles import Roles, script

WRITE = "insert into rows (job_id) values (%s)"
ENQUEUE = """
select count(fencepost.enqueue(%s, tenant => (number %% 100 + 1)::text))
from generate_series(1, %s) number"""


def was_asked() -> bool:
    """Set up, or enqueue, if the command line says so, and return whether it did."""
    with psycopg.connect(stamps.DATABASE_URL, autocommit=True) as conn:
        match sys.argv[1:]:
            case ["setup"]:
                conn.execute(script("fencepost", Roles(), "app.tenant").encode())
                conn.execute("create table rows (id bigint generated always as identity primary key, job_id bigint)")
                conn.execute("grant insert on rows to fencepost_worker")
            case ["enqueue", jobs, kind]:
                conn.execute(ENQUEUE, [kind, int(jobs)])
            case _:
                return False
    return True
