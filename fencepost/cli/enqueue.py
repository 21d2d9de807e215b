"""`fencepost enqueue`: one job from the shell.

Invariant: what is written arrives equal, or nothing is enqueued. A number that a float can't hold, a key that stands
twice, a time without a zone: each would arrive as something else, and is refused.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import sys
from datetime import datetime
from decimal import Decimal
from typing import Any

import click
import psycopg
from pydantic import TypeAdapter, ValidationError

from fencepost import settings as settings_module
from fencepost.cli.base import UNUSABLE, Refused, as_json, database
from fencepost.cli.output import say, say_json
from fencepost.handlers import registered
from fencepost.job import InvalidJob
from fencepost.jobs.enqueue import enqueue as enqueue_job
from fencepost.jobs.payload import LIMIT
from fencepost.settings import Seconds, Settings

EXAMPLE = """such as '{"month": "2026-10"}'"""


def seconds(text: str) -> float:
    """Return a duration, written as in the settings, in seconds."""
    try:
        return float(TypeAdapter(Seconds).validate_python(text))
    except ValidationError:
        raise click.BadParameter(f"{text!r} is no duration, such as 30s, 5m or 2h") from None


def moment(text: str) -> datetime:
    """Return a point in time that is the same on every machine."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        example = "2026-10-01T08:00:00+02:00"
        raise click.BadParameter(f"{text!r} is no time in ISO format, such as {example}") from None
    if found.tzinfo is None:
        why = "it would be another moment on every machine"
        raise click.BadParameter(f"{text!r} has no offset, such as +02:00 or Z: {why}")
    return found


@click.command()
@click.argument("kind")
@click.argument("payload", default="{}")
@click.option("--tenant", help="Whose job it is.")
@click.option("--queue", help="Where it waits; `default` if not given.")
@click.option("--priority", type=int, default=0, help="Lower runs first.")
@click.option("--run-at", type=moment, metavar="TIME", help="When it is due, in ISO format with an offset.")
@click.option("--after", type=seconds, metavar="DURATION", help="When it is due, from now: 30s, 5m, 2h.")
@click.option("--max-attempts", type=int, help="Counted runs at most, in place of the handler's.")
@click.option("--max-runtime", type=seconds, metavar="DURATION", help="How long a run may take, in place of the handler's.")
@click.option("--unique-key", help="If a queued or running job has it, that one's id is the answer.")
@as_json
def enqueue(*, kind: str, payload: str, tenant: str | None, as_json: bool, **options: Any) -> None:
    """Enqueue a job of KIND and print its id.

    PAYLOAD is a JSON object, the keyword arguments of the handler, or `-` to read it from stdin. A job needs a tenant,
    unless FENCEPOST_HANDLERS names the module of its handler and that says tenantless=True, or tenants are switched off
    by an empty FENCEPOST_TENANT_SETTING.
    """
    settings = settings_module.read()
    arguments = _object(payload)
    if tenant is None and settings.tenant_setting:
        _need_tenantless(kind, settings)
    try:
        with database(settings) as conn:
            job_id = enqueue_job(conn, kind, arguments, tenant=tenant, **options)
    except InvalidJob as error:
        raise Refused(str(error), UNUSABLE) from None
    except psycopg.errors.CheckViolation as error:
        rule = (error.diag.constraint_name or "").replace("_", " ")
        raise Refused(f"the job breaks a rule of the table: {rule}", UNUSABLE) from None
    except psycopg.DataError as error:
        raise Refused(f"{error.diag.message_primary} (SQLSTATE {error.sqlstate})", UNUSABLE) from None
    if as_json:
        say_json({"id": job_id})
    else:
        say(str(job_id))


def _object(payload: str) -> dict[str, Any]:
    try:
        text = _from_stdin() if payload == "-" else payload
        value = json.loads(
            text, object_pairs_hook=_without_twins, parse_int=_whole, parse_float=_exact, parse_constant=_no_number
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise Refused(f"the payload is no JSON ({error.msg} at {place}): give an object, {EXAMPLE}", UNUSABLE) from None
    except RecursionError:
        raise Refused("the payload is nested too deeply", UNUSABLE) from None
    except ValueError as error:
        raise Refused(f"the payload can't arrive as it is: {error}", UNUSABLE) from None
    if not isinstance(value, dict):
        kinds = {type(None): "null", bool: "true or false", str: "a string", list: "an array"}
        found = kinds.get(type(value), "a number")
        raise Refused(f"the payload must be a JSON object, {EXAMPLE}, not {found}", UNUSABLE)
    return value


def _from_stdin() -> str:
    # Every character may have been written as an escape of six, and spaces stand between them; more can't fit.
    most = 8 * LIMIT
    text = b"" if sys.stdin is None else sys.stdin.buffer.read(most + 1)
    if len(text) > most:
        raise ValueError(f"it has more than {most} bytes, and a payload may have {LIMIT}")
    return text.decode()


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:100]!r} stands twice in one object")
        found[key] = value
    return found


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"a number of {len(text)} digits is too long to be read: give it as a string") from None


def _exact(text: str) -> float:
    value = float(text)
    try:
        exact = math.isfinite(value) and Decimal(repr(value)) == Decimal(text)
    except ArithmeticError:
        exact = False
    if not exact:
        raise ValueError(f"a float can't hold {text[:40]} exactly: give it as a string")
    return value


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def _need_tenantless(kind: str, settings: Settings) -> None:
    """Refuse a job without tenant, unless its handler is known to run without one."""
    _import_handlers(settings)
    known = registered().get(kind)
    if known is None or not known.tenantless:
        why = "" if known is not None else ", or list in FENCEPOST_HANDLERS the module whose handler says tenantless=True"
        raise Refused(f"a job of kind {kind!r} needs a tenant: give --tenant{why}", UNUSABLE)


def _import_handlers(settings: Settings) -> None:
    settings_module.use_working_directory()
    for module in settings.handlers:
        try:
            # Only the id goes to stdout, whatever a module prints.
            with contextlib.redirect_stdout(sys.stderr):
                importlib.import_module(module)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # it is user's code: anything may come out
            line = f"{type(error).__name__}: {error}"
            cure = "give --tenant, or mend it (`fencepost check` shows all of the error)"
            raise Refused(f"{module}, in FENCEPOST_HANDLERS, can't be imported ({line[:300]}): {cure}") from None
