"""Fencepost's handlers: the same work as the naive designs do, noted in the same table."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psycopg

from article.designs import work
from fencepost import Job, handler

URL = os.environ.get("DATABASE_URL", "")
COUNT = "select count(*) from invoices"
WROTE = "insert into written values (%s, %s)"


def _act(job: Job, kind: str) -> None:
    with psycopg.connect(URL, autocommit=True) as conn:
        work.act(conn, URL, work.Taken(job.id, kind, job.attempt))


@handler("nothing", tenantless=True)
def nothing(job: Job) -> None:  # a handler is given its job
    """Do nothing."""


@handler("work", tenantless=True)
def do_work(job: Job, *, kind: str) -> None:
    """Do what a naive design's job of that kind does, and write a row."""
    _act(job, kind)
    with job.transaction() as conn:
        conn.execute(WROTE, [job.id, job.attempt])


@handler("count", tenantless=True)
def count(job: Job, *, fails: bool = False, for_the_session: str = "") -> int:
    """Count the invoices that can be seen; set a tenant for the session first, as a job should not, if one is given."""
    with job.transaction() as conn:
        if for_the_session:
            conn.execute("select set_config('app.tenant', %s, false)", [for_the_session])
        row = conn.execute(COUNT).fetchone()
    if fails:
        raise ValueError("a job that fails")
    return row[0] if row else 0


@handler("holds", tenantless=True, max_runtime=600)
def holds(job: Job) -> None:
    """Hold a job between two short transactions, until released."""
    with job.transaction() as conn:
        conn.execute(WROTE, [job.id, job.attempt])
    _until_released(job)


@handler("holds.transaction", tenantless=True, max_runtime=600, transaction=True)
def holds_a_transaction(job: Job) -> None:
    """Hold a job in the one transaction that also finishes it, until released."""
    job.conn.execute(WROTE, [job.id, job.attempt])
    _until_released(job)


def _until_released(job: Job) -> None:
    work.note(URL, job.id, job.attempt, "start")
    while not Path("released").exists():
        time.sleep(0.05)
