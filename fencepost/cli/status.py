"""`fencepost status`: who works, what waits, and what should worry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from fencepost import settings as settings_module
from fencepost.checks import bypass_line
from fencepost.cli.base import as_json, database
from fencepost.cli.output import Json, duration, say, say_json, table, visible
from fencepost.jobs import report
from fencepost.jobs.report import Row

MOST_SHOWN = 100
"""Kinds without a handler that are shown: a mistake can make any number of them."""


@click.command()
@as_json
def status(*, as_json: bool) -> None:
    """Show the living supervisors and what their slots run, how many jobs wait, run and are dead, and what is wrong.

    Wrong is: a kind that waits and that no living supervisor serves; a run whose lease has expired and that no one has
    swept; a worker that logs in as a role which row-level security does not apply to. Jobs that are done or cancelled
    are not counted, since only the whole table could tell how many they are: the answer comes as quickly after a
    hundred million jobs.
    """
    settings = settings_module.read()
    schema = settings.schema
    with database(settings) as conn:
        supervisors = report.living(conn, schema)
        counts = report.counts(conn, schema)
        due = report.due_kinds(conn, schema)
        bypassing = report.bypassing_workers(conn, schema)
    document = {
        "supervisors": [_supervisor(row) for row in supervisors],
        "jobs": {**counts, "counted_to": report.COUNT_TO},
        "oldest_due_waits_for": max((row["waits_for"] for row in due), default=None),
        "not_served": [
            {"queue": row["queue"], "kind": row["kind"], "waits_for": row["waits_for"]} for row in due if not row["served"]
        ][:MOST_SHOWN],
        "warnings": [bypass_line(row["role"], row["reason"], row["example"]) for row in bypassing],
    }
    if as_json:
        say_json(document)
    else:
        say("\n".join(_lines(document)))


def _supervisor(row: Row) -> dict[str, Any]:
    plain = {name: row[name] for name in ("name", "host", "pid", "version", "state", "queues", "kinds")}
    return {
        **plain,
        "mode": "listening" if row["listening"] else "polling",
        "lease": row["lease"],
        "heartbeat": row["heartbeat"],
        "started_at": row["started_at"],
        "seen_at": row["seen_at"],
        "seen_ago": row["seen_ago"],
        "slots": Json(row["slots"]),
    }


def _lines(document: dict[str, Any]) -> Iterator[str]:
    supervisors = document["supervisors"]
    slots = {one["name"]: _slots(one["slots"].text) for one in supervisors}
    busy = [(one, slot) for one in supervisors for slot in slots[one["name"]] if slot.get("job") is not None]
    if supervisors:
        yield table(
            ["supervisor", "host", "pid", "version", "state", "mode", "busy", "queues", "seen"],
            [_cells(one, slots[one["name"]]) for one in supervisors],
        )
    else:
        yield "no supervisor lives: start one with `fencepost run`"
    if busy:
        yield ""
        yield table(["supervisor", "slot", "worker", "job", "kind", "attempt"], [_busy(one, slot) for one, slot in busy])
    yield ""
    yield from _jobs(document)


def _cells(one: dict[str, Any], slots: list[dict[str, Any]]) -> list[str]:
    busy = sum(slot.get("job") is not None for slot in slots)
    return [
        one["name"],
        one["host"],
        str(one["pid"]),
        one["version"],
        one["state"],
        one["mode"],
        f"{busy} of {len(slots)}",
        ",".join(one["queues"]),
        f"{duration(one['seen_ago'])} ago",
    ]


def _busy(one: dict[str, Any], slot: dict[str, Any]) -> list[str]:
    return [one["name"], *(str(slot.get(name, "-")) for name in ("slot", "worker", "job", "kind", "attempt"))]


def _jobs(document: dict[str, Any]) -> Iterator[str]:
    counts = document["jobs"]
    for name in ("queued", "running", "dead"):
        more = " or more" if counts[name] >= counts["counted_to"] else ""
        yield f"{name:<10}{counts[name]}{more}"
    yield "done and cancelled jobs are not counted"
    if document["oldest_due_waits_for"] is not None:
        yield f"the oldest job that is due waits for {duration(document['oldest_due_waits_for'])}"
    if counts["expired"]:
        yield f"warning: {counts['expired']} running jobs have an expired lease: a living supervisor sweeps them"
    for one in document["not_served"]:
        where, since = f"kind {one['kind']} in queue {one['queue']}", duration(one["waits_for"])
        yield visible(f"warning: no living supervisor serves {where}, which waits for {since}")
    for line in document["warnings"]:
        yield visible(f"warning: {line}")


def _slots(text: str) -> list[dict[str, Any]]:
    """Return what a row says of its slots: a job with the worker's login can have written anything there."""
    try:
        slots = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [slot for slot in slots if isinstance(slot, dict)] if isinstance(slots, list) else []
