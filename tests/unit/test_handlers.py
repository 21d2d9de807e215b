"""The registry refuses what could not run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
import tenacity

from fencepost import JobError, UnknownHandler, handler
from fencepost.handlers import handler_of, kind_of, registered


@pytest.fixture(autouse=True)
def _empty_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.handlers._handlers", {})


def work(job: Any) -> None: ...


def other_work(job: Any) -> None: ...


async def async_work(job: Any) -> None: ...


def test_a_decorated_function_stays_as_it_was() -> None:
    """And can be called like any other."""
    assert handler("a")(work) is work
    assert handler("b")(async_work) is async_work
    assert set(registered()) == {"a", "b"}
    assert (kind_of(work), handler_of("b").function) == ("a", async_work)


def test_what_was_said_of_a_handler_is_kept() -> None:
    """As it was given."""
    wait = tenacity.wait_fixed(3)
    handler("a", max_attempts=3, max_runtime=1.5, wait=wait, transaction=True, tenantless=True)(work)
    it = handler_of("a")
    assert (it.kind, it.max_attempts, it.max_runtime, it.wait) == ("a", 3, timedelta(seconds=1.5), wait)
    assert (it.transaction, it.tenantless) == (True, True)
    handler("b")(other_work)
    it = handler_of("b")
    assert (it.max_attempts, it.max_runtime, it.wait, it.transaction, it.tenantless) == (None, None, None, False, False)


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ({"kind": ""}, ValueError, "kind"),
        ({"kind": "é" * 129}, ValueError, "256 bytes"),
        ({"max_attempts": 0}, ValueError, "max_attempts must be at least 1, not 0"),
        ({"max_attempts": -1}, ValueError, "max_attempts"),
        ({"max_attempts": 2**31}, ValueError, "max_attempts"),
        ({"max_runtime": 0}, ValueError, "max_runtime must be more than 0"),
        ({"max_runtime": -1}, ValueError, "negative"),
        ({"max_runtime": float("nan")}, ValueError, "finite"),
        ({"max_runtime": float("inf")}, ValueError, "finite"),
        ({"wait": 60}, TypeError, "wait must be one of tenacity's wait objects"),
    ],
    ids=str,
)
def test_what_could_not_run_is_refused_where_it_is_written(
    arguments: dict[str, Any], error: type[Exception], told: str
) -> None:
    """At import, with the name of what is wrong; nothing is registered."""
    with pytest.raises(error, match=told):
        handler(**{"kind": "a", **arguments})(work)
    assert registered() == {}


def test_generators_are_refused() -> None:
    """A call of one runs nothing of it, and would look like a success."""

    def generator(job: Any) -> Iterator[int]:
        yield 1

    async def async_generator(job: Any) -> AsyncIterator[int]:
        yield 1

    for function in (generator, async_generator):
        with pytest.raises(TypeError, match="a generator can't be a handler"):
            handler("a")(function)


def test_two_handlers_of_one_kind_are_refused_with_both_names() -> None:
    """Which one would run must not hang on the order of imports."""
    handler("a")(work)
    with pytest.raises(JobError, match=r"'a' has two handlers: .*\.work and .*\.other_work"):
        handler("a")(other_work)
    assert handler_of("a").function is work


def test_a_module_may_be_imported_twice() -> None:
    """The same function again, of another copy of its module's code."""
    handler("a")(work)

    def again(job: Any) -> None: ...

    again.__module__, again.__qualname__ = work.__module__, work.__qualname__
    handler("a")(again)
    assert handler_of("a").function is again


def test_an_unknown_kind_is_told_with_the_cure() -> None:
    """Is its module listed?"""
    with pytest.raises(UnknownHandler, match="FENCEPOST_HANDLERS"):
        handler_of("a")
    with pytest.raises(UnknownHandler, match="decorate it with @handler"):
        kind_of(work)


def test_a_decorator_without_a_kind_is_told() -> None:
    """`@handler` alone is written quickly."""
    with pytest.raises((TypeError, ValueError), match="kind"):
        handler(work)  # type: ignore[arg-type]


def test_the_registry_that_is_given_out_is_a_copy() -> None:
    """Nobody registers by the back door."""
    registered()["a"] = handler_of  # type: ignore[assignment]
    assert registered() == {}
