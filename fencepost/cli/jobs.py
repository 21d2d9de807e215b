"""`fencepost list` and `fencepost show`: what became of jobs, without a debugger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast, get_args

import click

from fencepost import settings as settings_module
from fencepost.cli.base import Refused, as_json, database
from fencepost.cli.output import between, cut, duration, json_or_none, say, say_json, table, visible
from fencepost.job import InvalidJob, Status
from fencepost.jobs import report
from fencepost.jobs.by_hand import LARGEST_ID
from fencepost.jobs.enqueue import tenant_text
from fencepost.jobs.report import Filters, Page, Row

PAYLOAD_SHOWN = 60
ERROR_SHOWN = 120
DOCUMENT_SHOWN = 2_000
TRACEBACK_LINES = 20

SHOWN_OTHERWISE = ("class", "message", "traceback", "signal", "signal_number", "exit_code")
"""What of a run's error has a line of its own, or is said in the message: killed by SIGSEGV (signal 11)."""


def job_id(text: str) -> int:
    """Return the id of a job: a number from 1 on."""
    if text.isascii() and text.isdigit() and len(text) <= 19 and 1 <= int(text) <= LARGEST_ID:
        return int(text)
    raise click.BadParameter(f"{text[:100]!r} is no id: give a number from 1 on")


def tenant_id(text: str) -> str:
    """Return a tenant as the table keeps it."""
    try:
        return cast("str", tenant_text(text))
    except InvalidJob as error:
        raise click.BadParameter(str(error)) from None


of_tenant = click.option("--tenant", type=tenant_id, help="Whose job it must be: another's is as one that is not there.")


@click.command("list")
@click.option("--status", type=click.Choice(get_args(Status)), help="Only jobs in this state.")
@click.option("--kind", help="Only jobs of this kind.")
@click.option("--queue", help="Only jobs of this queue.")
@click.option("--tenant", help="Only jobs of this tenant.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many at most.")
@click.option("--before", type=job_id, metavar="ID", help="Only jobs that are older than this one: the next page.")
@as_json
def list_jobs(
    *,
    status: str | None,
    kind: str | None,
    queue: str | None,
    tenant: str | None,
    limit: int,
    before: int | None,
    as_json: bool,
) -> None:
    """List jobs, the newest first.

    Payloads and errors are cut: `fencepost show` has them whole. Where older jobs may follow, the last line says with which
    --before they are asked for (with --json it is `next_before`, else null). Queued, running and dead jobs are found however
    old they are; with any other filter 200,000 ids are looked at each time, and the answer says so.
    """
    settings = settings_module.read()
    with database(settings) as conn:
        page = report.page(conn, settings.schema, Filters(status, kind, queue, tenant), limit, before)
    if as_json:
        jobs = [_without_clock(row) for row in page.jobs]
        say_json({"jobs": jobs, "looked_at_ids_above": page.above, "next_before": page.next_before})
    else:
        say(_listing(page))


@click.command()
@click.argument("job_id", metavar="ID", type=job_id)
@of_tenant
@as_json
def show(*, job_id: int, tenant: str | None, as_json: bool) -> None:
    """Show a job: what it is, where it stands, and how each of its runs ended.

    For a run that failed the error's class, message and the end of its traceback; for one that was killed what is known
    of its death, and its Python stacks. With --json everything is whole. Of more than 1,000 runs only the last are shown.
    """
    settings = settings_module.read()
    with database(settings) as conn:
        job = report.job(conn, settings.schema, job_id)
        runs = report.runs(conn, settings.schema, job_id)
    if job is None or (tenant is not None and job["tenant_id"] != tenant):
        raise Refused(f"there is no job {job_id} in schema {settings.schema}: `fencepost list` shows those there are")
    if as_json:
        document = {name: json_or_none(job[name]) for name in ("payload", "progress", "result")}
        told = [{**run, "error": json_or_none(run["error"])} for run in runs]
        say_json({**_without_clock(job), **document, "runs": told})
    else:
        say("\n".join([*_job(job), *(line for run in runs for line in _run(run))]))


def _listing(page: Page) -> str:
    columns = ["id", "status", "kind", "queue", "tenant", "attempts", "when", "payload", "last error"]
    text = table(columns, [_cells(row) for row in page.jobs], elastic=2) if page.jobs else "no jobs"
    if page.next_before is None:
        return text
    reason = "older jobs follow"
    if page.next_before == page.above + 1:
        reason = f"only jobs with an id above {page.above} were looked at"
    return f"{text}\n{reason}: go on with --before {page.next_before}"


def _cells(row: Row) -> list[str]:
    return [
        str(row["id"]),
        row["status"],
        row["kind"],
        row["queue"],
        row["tenant_id"] or "-",
        f"{row['attempts']}/{row['max_attempts'] or '-'}",
        _when(row),
        "(large)" if row["payload_start"] is None else _start(row["payload_start"], PAYLOAD_SHOWN),
        _start(row["last_error"] or "", ERROR_SHOWN),
    ]


def _start(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def _when(row: Row) -> str:
    now = row["asked_at"]
    match row["status"]:
        case "queued" if row["run_at"] > now:
            return f"due in {between(now, row['run_at'])}"
        case "queued":
            return f"due for {between(row['run_at'], now)}"
        case "running":
            return f"for {between(row['started_at'], now)}"
        case _:
            return f"{between(row['finished_at'], now)} ago"


def _job(job: Row) -> Iterator[str]:
    facts: dict[str, Any] = {
        "status": f"{job['status']}, {_when(job)}",
        "kind": job["kind"],
        "queue": f"{job['queue']}, priority {job['priority']}",
        "tenant": job["tenant_id"],
        "attempts": f"{job['attempts']} of {job['max_attempts'] or 'what its handler says'}",
        "interruptions": job["interruptions"] or None,
        "created": job["created_at"].isoformat(),
        "due": job["run_at"].isoformat(),
        "started": _iso(job["started_at"]),
        "finished": _iso(job["finished_at"]),
        "cancel requested": _iso(job["cancel_requested_at"]),
        "held by": job["locked_by"] and f"{job['locked_by']}, until {job['locked_until'].isoformat()}",
        "max runtime": job["max_runtime"] and duration(job["max_runtime"].total_seconds()),
        "unique key": job["unique_key"],
        "payload": cut(job["payload"], DOCUMENT_SHOWN),
        "progress": job["progress"],
        "result": job["result"] and cut(job["result"], DOCUMENT_SHOWN),
        "last error": job["last_error"],
    }
    yield f"job {job['id']}"
    for name, value in facts.items():
        if value is not None:
            yield f"  {name:<17} {visible(str(value))}"


def _run(run: Row) -> Iterator[str]:
    took = between(run["started_at"], run["finished_at"])
    memory = f", {run['max_rss'] / 1024**2:.0f} MB at most" if run["max_rss"] else ""
    yield ""
    yield visible(f"run {run['fence']}, attempt {run['attempt']}: {run['outcome']} after {took}, by {run['worker']}{memory}")
    yield f"  {run['started_at'].isoformat()} to {run['finished_at'].isoformat()}"
    if run["error"] is not None:
        yield from _error(run["error"])
    if run["stack"]:
        yield "  stacks:"
        yield from _end_of(run["stack"])


def _error(text: str) -> Iterator[str]:
    try:
        error = json.loads(text)
    except (ValueError, RecursionError):
        error = None
    if not isinstance(error, dict):
        yield f"  error: {visible(cut(text, DOCUMENT_SHOWN))}"
        return
    name = f"{error['class']}: " if error.get("class") else ""
    yield f"  {visible(cut(name + str(error.get('message', '')), DOCUMENT_SHOWN))}"
    for key, value in error.items():
        if key not in SHOWN_OTHERWISE and value not in (None, False):
            yield f"  {visible(cut(f'{key}: {value}', DOCUMENT_SHOWN))}"
    if error.get("traceback"):
        yield from _end_of(str(error["traceback"]))


def _end_of(text: str) -> Iterator[str]:
    lines = text.rstrip().splitlines()
    if len(lines) > TRACEBACK_LINES:
        yield f"    … ({len(lines) - TRACEBACK_LINES} lines before; --json shows all)"
    for line in lines[-TRACEBACK_LINES:]:
        yield f"    {visible(cut(line, DOCUMENT_SHOWN))}"


def _iso(moment: Any) -> str | None:
    return None if moment is None else str(moment.isoformat())


def _without_clock(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "asked_at"}
