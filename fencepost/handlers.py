"""The registry of handlers: which function runs which kind of job."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from os.path import realpath
from typing import Any, TypeVar

from tenacity.wait import wait_base

from fencepost.job import JobError, UnknownHandler, as_timedelta

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Handler:
    """What runs jobs of one kind. Where a limit is None, the job's own or the setting applies."""

    kind: str
    function: Callable[..., Any]
    max_attempts: int | None
    max_runtime: timedelta | None
    wait: wait_base | None
    transaction: bool
    tenantless: bool


_handlers: dict[str, Handler] = {}


def handler(
    kind: str,
    *,
    max_attempts: int | None = None,
    max_runtime: float | timedelta | None = None,
    wait: wait_base | None = None,
    transaction: bool = False,
    tenantless: bool = False,
) -> Callable[[Function], Function]:
    """Register the decorated function, sync or async, for jobs of `kind`. It stays a plain function.

    It is called with the `Job` and the payload's entries as keyword arguments; what it returns must be JSON, and is kept as
    the job's result.

    max_attempts: counted runs at most; None is FENCEPOST_MAX_ATTEMPTS.
    max_runtime: seconds or a timedelta; None is FENCEPOST_MAX_RUNTIME.
    wait: one of tenacity's wait objects, for the time between attempts.
    transaction: the whole run is one transaction, `job.conn`, that also finishes the job.
    tenantless: jobs of this kind run without a tenant.

    Raises ValueError for a limit that is none, TypeError for a function that can't be a handler, JobError if another
    function has the kind already, or this one by another name of its module.
    """
    if not isinstance(kind, str):
        raise TypeError('a handler needs the kind of its jobs: @handler("a.kind")')
    if not kind or len(kind.encode()) > 256:
        raise ValueError("a handler needs the kind of its jobs, of at most 256 bytes")
    if max_attempts is not None and max_attempts < 1:
        raise ValueError(f"{kind}: max_attempts must be at least 1, not {max_attempts}")
    if max_attempts is not None and max_attempts >= 2**31:
        raise ValueError(f"{kind}: max_attempts must fit 32 bits, {max_attempts} does not")
    limit = None if max_runtime is None else as_timedelta(max_runtime)
    if limit is not None and not limit:
        raise ValueError(f"{kind}: max_runtime must be more than 0")
    if wait is not None and not isinstance(wait, wait_base):
        raise TypeError(f"{kind}: wait must be one of tenacity's wait objects, such as wait_fixed(60)")

    def register(function: Function) -> Function:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{kind}: a generator can't be a handler, it would never be run")
        other = _handlers.get(kind)
        if other is not None and _place(other.function) != _place(function):
            raise JobError(_clash(kind, other.function, function))
        _handlers[kind] = Handler(kind, function, max_attempts, limit, wait, transaction, tenantless)
        return function

    return register


def handler_of(kind: str) -> Handler:
    """Return the handler of `kind`, or raise UnknownHandler."""
    try:
        return _handlers[kind]
    except KeyError:
        raise UnknownHandler(f"no handler for {kind!r}: is its module listed in FENCEPOST_HANDLERS?") from None


def find(kind: str) -> Handler | None:
    """Return the handler of `kind`, None if there is none here."""
    return _handlers.get(kind)


def registered() -> dict[str, Handler]:
    """Return the handlers by kind."""
    return dict(_handlers)


def kind_of(function: Callable[..., Any]) -> str:
    """Return the kind that `function` is registered for, or raise UnknownHandler."""
    for found in _handlers.values():
        if found.function is function:
            return found.kind
    raise UnknownHandler(f"{_place(function)} is no handler: decorate it with @handler(kind)")


def _clash(kind: str, one: Callable[..., Any], other: Callable[..., Any]) -> str:
    code, other_code = (getattr(inspect.unwrap(function), "__code__", None) for function in (one, other))
    # Code is equal where it does the same and stands in the same line; of what file, it does not compare.
    if code is not None and code == other_code and realpath(code.co_filename) == realpath(other_code.co_filename):
        names = f"{one.__module__} and as {other.__module__}"
        return f"kind {kind!r} is registered twice: {code.co_filename} is imported as {names}, import it by one name only"
    return f"kind {kind!r} has two handlers: {_place(one)} and {_place(other)}"


def _place(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', '?')}.{name}"
