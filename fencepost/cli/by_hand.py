"""`fencepost cancel` and `fencepost retry`: an operator's hands on single jobs.

Invariant: the exit code agrees with what became of the jobs. 0 means that each is as was asked; those that are not are named,
with the reason, on the one line of the error. Asked again, both commands do no harm.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import click
from psycopg import Connection

from fencepost import settings as settings_module
from fencepost.cli.base import Refused, as_json, database
from fencepost.cli.jobs import job_id, of_tenant
from fencepost.cli.output import say, say_json
from fencepost.job import RetryRefused, Status, UnknownJob
from fencepost.jobs import by_hand, report

WAIT = 30.0
"""Seconds that a cancel waits: without notifications a supervisor learns of it only with its next heartbeat."""

BETWEEN_LOOKS = 0.1
NAMED = 10
"""As many refused jobs are named in one line."""

job_ids = click.argument("job_ids", metavar="ID...", nargs=-1, required=True, type=job_id)


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one job: `said` if it is as was asked, else why it is not."""

    job_id: int
    status: Status | None
    said: str = ""
    refused: str | None = None


@click.command()
@job_ids
@of_tenant
@click.option("--no-wait", is_flag=True, help="Only ask running jobs to stop; do not wait for their end.")
@as_json
def cancel(*, job_ids: tuple[int, ...], tenant: str | None, no_wait: bool, as_json: bool) -> None:
    """Cancel jobs, and wait for the end of those that run.

    A queued job is cancelled at once. A running one is asked to stop, and killed if it does not within its supervisor's
    FENCEPOST_KILL_GRACE; 30 s are waited at most until it has ended. A job whose handler returned before that is done, and
    one that had ended before stays as it is.

    Exit code 0: all are cancelled (with --no-wait: or asked to stop). 1: at least one is not, and the line on stderr says
    why. What was asked for stands, also if the waiting ends or is interrupted; asking again goes on waiting.
    """
    settings = settings_module.read()
    with database(settings) as conn:
        statuses = {job_id: _cancel(conn, job_id, tenant) for job_id in job_ids}
        asked = [job_id for job_id, status in statuses.items() if status == "running"]
        if asked and not no_wait:
            statuses |= _at_rest(conn, settings.schema, asked)
    _tell([_cancelled(job_id, status, no_wait=no_wait) for job_id, status in statuses.items()], as_json=as_json)


@click.command()
@job_ids
@of_tenant
@as_json
def retry(*, job_ids: tuple[int, ...], tenant: str | None, as_json: bool) -> None:
    """Queue dead or cancelled jobs again, due at once, with all their attempts.

    A queued job stays as it is. One that is running or done is not queued, nor one whose unique key another queued or
    running job has.

    Exit code 0: all are queued. 1: at least one is not, and the line on stderr says why.
    """
    settings = settings_module.read()
    with database(settings) as conn:
        answers = [_retry(conn, settings.schema, job_id, tenant) for job_id in dict.fromkeys(job_ids)]
    _tell(answers, as_json=as_json)


def _cancel(conn: Connection[tuple[object, ...]], job_id: int, tenant: str | None) -> Status | None:
    try:
        return by_hand.cancel(conn, job_id, tenant=tenant)
    except UnknownJob:
        return None


def _at_rest(conn: Connection[tuple[object, ...]], schema: str, asked: list[int]) -> dict[int, Status | None]:
    """Wait until none of the jobs runs any more, and return where they stand then."""
    until = time.monotonic() + WAIT
    while True:
        found = report.statuses(conn, schema, asked)
        if "running" not in found.values() or time.monotonic() >= until:
            return {job_id: found.get(job_id) for job_id in asked}
        time.sleep(BETWEEN_LOOKS)


def _cancelled(job_id: int, status: Status | None, *, no_wait: bool) -> Answer:
    match status:
        case "cancelled":
            return Answer(job_id, status, said=f"job {job_id} is cancelled")
        case "running" if no_wait:
            return Answer(job_id, status, said=f"job {job_id} is asked to stop")
        case "running":
            return Answer(job_id, status, refused=f"job {job_id} is asked to stop, and still runs after {WAIT:.0f} s")
        case "queued":
            return Answer(job_id, status, refused=f"job {job_id} was cancelled, and someone has put it back")
        case "done" | "dead":
            return Answer(job_id, status, refused=f"job {job_id} is {status}: it ended before it could be cancelled")
        case None:
            return Answer(job_id, status, refused=f"there is no job {job_id}")


def _retry(conn: Connection[tuple[object, ...]], schema: str, job_id: int, tenant: str | None) -> Answer:
    try:
        by_hand.retry(conn, job_id, tenant=tenant)
    except UnknownJob as error:
        return Answer(job_id, None, refused=str(error))
    except RetryRefused as error:
        return Answer(job_id, report.statuses(conn, schema, [job_id]).get(job_id), refused=str(error))
    return Answer(job_id, "queued", said=f"job {job_id} is queued")


def _tell(answers: list[Answer], *, as_json: bool) -> None:
    refused = [answer.refused for answer in answers if answer.refused is not None]
    if as_json:
        say_json({"jobs": [{"id": one.job_id, "status": one.status, "refused": one.refused} for one in answers]})
    elif said := [answer.said for answer in answers if answer.refused is None]:
        say("\n".join(said))
    if refused:
        more = f"; and {len(refused) - NAMED} more (--json names all)" if len(refused) > NAMED else ""
        raise Refused("; ".join(refused[:NAMED]) + more)
