"""Put many jobs into the caller's own transaction: all of them, or none.

Invariant: what has been sent when a job is found wrong is rolled back, and no more of the caller's transaction than that. Two
who enqueue the same unique keys at once take them in the same order, so that neither waits for the other for ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.errors import InvalidParameterValue
from psycopg.rows import scalar_row

from fencepost.job import InvalidJob, JobError
from fencepost.jobs.enqueue import NewJob, arguments_of, job_tenant
from fencepost.jobs.sql import statement
from fencepost.settings import enqueue_settings

MOST_JOBS = 1000
MOST_TEXT = 256 * 1024
"""At how many jobs, or characters of payload, a message is full: little enough to be in memory twice, and sent at one go."""

TEXTS = ("kind", "payload", "tenant", "queue", "unique_key")
OTHERS = ("priority", "run_at", "after", "max_attempts", "max_runtime")
BY_DEFAULT = {"priority": 0}
"""What stands where nothing was said: None for all others. A column of nothing else is left out."""

Placed = tuple[int, dict[str, Any]]
"""A job's place among all, and its arguments."""

Message = tuple[list[int], dict[str, Any]]
"""The places of the jobs that travel together, and the parameters of enqueue_many.sql for them."""


def enqueue_many(conn: Connection[Any], jobs: Iterable[NewJob]) -> list[int]:
    """Enqueue `jobs` on `conn`, in its current transaction, and return their ids in the same order.

    All of them, or none: what is wrong with one is told with its place, as `jobs[3]`, and those before it are rolled back; the
    rest of the transaction stays as it was. In autocommit they are a transaction of their own.

    jobs: any iterable. What it gives is sent while more is taken from it, so that it may be longer than memory is large; only
        jobs with a unique key are kept to the end, and enqueued behind all others in the order of their keys. It must not
        stream from `conn` itself (a server-side cursor, COPY): that takes another connection.

    Raises InvalidJob and UnknownHandler as `enqueue` does, and whatever psycopg raises.
    """
    schema = enqueue_settings().schema
    answers: list[tuple[list[int], list[int]]] = []
    with Cursor(conn, row_factory=scalar_row) as cursor:
        # Opens the caller's transaction where there is none yet. What follows would commit one that it has opened itself.
        own = cursor.execute(statement("own_tenant", schema)).fetchone()
        with conn.transaction(), conn.pipeline():
            sent: list[int] = []
            # Each is made while the server works on the one before.
            for places, arguments in _messages(jobs, job_tenant(conn) or own):
                if sent:
                    with _named(sent):
                        answers.append((sent, cursor.fetchall()[0]))
                # Not prepared: a pooler may give another session to the next transaction.
                cursor.execute(statement("enqueue_many", schema), arguments, prepare=False)
                sent = places
            if sent:
                with _named(sent):
                    answers.append((sent, cursor.fetchall()[0]))
    return _in_order(answers)


async def aenqueue_many(conn: AsyncConnection[Any], jobs: Iterable[NewJob]) -> list[int]:
    """Enqueue `jobs` on an AsyncConnection; as `enqueue_many` otherwise."""
    schema = enqueue_settings().schema
    answers: list[tuple[list[int], list[int]]] = []
    async with AsyncCursor(conn, row_factory=scalar_row) as cursor:
        await cursor.execute(statement("own_tenant", schema))
        own = await cursor.fetchone()
        async with conn.transaction(), conn.pipeline():
            sent: list[int] = []
            for places, arguments in _messages(jobs, job_tenant(conn) or own):
                if sent:
                    with _named(sent):
                        answers.append((sent, (await cursor.fetchall())[0]))
                await cursor.execute(statement("enqueue_many", schema), arguments, prepare=False)
                sent = places
            if sent:
                with _named(sent):
                    answers.append((sent, (await cursor.fetchall())[0]))
    return _in_order(answers)


def _messages(jobs: Iterable[NewJob], own: str | None) -> Iterator[Message]:
    batch: list[Placed] = []
    size = 0
    for placed in _keys_last(jobs, own):
        batch.append(placed)
        size += len(placed[1]["payload"])
        if len(batch) == MOST_JOBS or size >= MOST_TEXT:
            yield _message(batch)
            batch, size = [], 0
    if batch:
        yield _message(batch)


def _keys_last(jobs: Iterable[NewJob], own: str | None) -> Iterator[Placed]:
    keyed: list[Placed] = []
    for place, job in enumerate(jobs):
        arguments = _arguments(place, job, own)
        if arguments["unique_key"] is None:
            yield place, arguments
        else:
            keyed.append((place, arguments))
    # As the function sorts those of one message: by code points, which is the order of their bytes, too.
    yield from sorted(keyed, key=lambda one: (one[1]["unique_key"], one[1]["tenant"] or ""))


def _arguments(place: int, job: NewJob, own: str | None) -> dict[str, Any]:
    if not isinstance(job, NewJob):
        raise InvalidJob(f"jobs[{place}] is a {type(job).__name__}: give NewJob(kind, payload, …)")
    try:
        return arguments_of(job, own)
    except JobError as error:
        raise type(error)(f"jobs[{place}]: {error}") from None


def _message(batch: list[Placed]) -> Message:
    arguments: dict[str, Any] = {}
    for name in (*TEXTS, *OTHERS):
        column = [job[name] for _, job in batch]
        said = column.count(BY_DEFAULT.get(name)) < len(column)
        arguments[name] = (_array(column) if name in TEXTS else column) if said else None
    return [place for place, _ in batch], arguments


def _array(texts: list[str | None]) -> str:
    """Return an array as the server reads it. psycopg, element by element, takes longer for it than all else takes together.

    No text is empty or holds a NUL character: `arguments_of` has seen to that.
    """
    joined = "\0".join([text or "" for text in texts])
    escaped = joined.replace("\\", "\\\\").replace('"', '\\"')
    return "{" + ",".join([f'"{text}"' if text else "NULL" for text in escaped.split("\0")]) + "}"


@contextmanager
def _named(places: list[int]) -> Iterator[None]:
    """Name the job that only the server has found wrong, such as for a number that it writes out longer."""
    try:
        yield
    except InvalidParameterValue as error:
        number = re.search(r"said of job (\d+)$", error.diag.message_detail or "")
        if number is None:
            raise
        raise InvalidJob(f"jobs[{places[int(number[1]) - 1]}]: {error.diag.message_primary}") from None


def _in_order(answers: list[tuple[list[int], list[int]]]) -> list[int]:
    ids = [0] * sum(len(places) for places, _ in answers)
    for places, found in answers:
        for place, job_id in zip(places, found, strict=True):
            ids[place] = job_id
    return ids
