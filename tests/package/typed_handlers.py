"""Handlers as users write them, for a type checker: it is not run. An `ignore` marks what has to be an error."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import tenacity

from fencepost import Cancel, GiveUp, Job, JobError, Retry, Snooze, Stopped, aenqueue, enqueue, handler


@handler("invoice.count", max_attempts=3, max_runtime=timedelta(minutes=1), wait=tenacity.wait_fixed(60))
def count(job: Job, *, month: str) -> dict[str, int]:
    with job.transaction() as conn:
        row = conn.execute("select count(*) from invoices where month = %s", [month]).fetchone()
    job.progress(1, 2)
    if row is None:
        raise Retry("not there yet", after=60)
    return {"invoices": row[0]}


@handler("invoice.send", tenantless=True)
async def send(job: Job) -> None:
    async with job.transaction() as conn:
        cursor = await conn.execute("select 1")
        if await cursor.fetchone() is None:
            raise Snooze(timedelta(hours=1))


@handler("invoice.pay", transaction=True, max_runtime=1.5)
def pay(job: Job) -> None:
    try:
        job.conn.execute("insert into payments values (%s, %s)", [job.idempotency_key, job.tenant])
    except Stopped as stopped:
        reason: str = stopped.reason
        raise GiveUp(reason) from None
    if job.attempt == job.max_attempts:
        raise Cancel("nobody waits for it any more")


def order(job: Job) -> None:
    with psycopg.connect() as conn:
        number: int = enqueue(conn, count, {"month": "2026-10"}, tenant=2, after=60)
        number += enqueue(conn, "invoice.send", run_at=datetime.now(UTC), unique_key="daily", queue="mail", priority=-1)
        enqueue(conn, number)  # type: ignore[arg-type]
        aenqueue(conn, "invoice.pay")  # type: ignore[arg-type, unused-coroutine]
    result: dict[str, int] = count(job, month="2026-10")  # a handler stays a plain function
    count(job, month=result)  # type: ignore[arg-type]


async def order_async() -> int:
    async with await psycopg.AsyncConnection.connect() as conn:
        try:
            return await aenqueue(conn, pay, {}, tenant="a", max_attempts=1, max_runtime=timedelta(hours=1))
        except JobError:
            enqueue(conn, pay)  # type: ignore[arg-type]
            return 0


@handler(count)  # type: ignore[arg-type]
def without_a_kind(job: Job) -> None: ...


@handler("invoice.late", wait=60)  # type: ignore[arg-type]
def with_a_wait_that_is_none(job: Job) -> None: ...
