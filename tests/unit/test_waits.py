"""How long to wait before the next attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tenacity
from tenacity.wait import wait_base

from fencepost.handlers import Handler
from fencepost.settings import Settings, read
from fencepost.worker.run import wait_before_next


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A first wait of 10 s, and of 100 s at most."""
    monkeypatch.setenv("FENCEPOST_BACKOFF", "10s")
    monkeypatch.setenv("FENCEPOST_BACKOFF_MAX", "100s")
    return read()


class Wait(wait_base):
    """A user's wait object."""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self.answer = answer

    def __call__(self, retry_state: tenacity.RetryCallState) -> float:
        return self.answer()  # type: ignore[no-any-return]


def handler_that_waits(wait: wait_base | None) -> Handler:
    return Handler("ok", int, None, None, wait, transaction=False, tenantless=False)


def seconds(handler: Handler | None, settings: Settings, attempt: int) -> float:
    return wait_before_next(handler, settings, attempt).total_seconds()


@pytest.mark.parametrize(("attempt", "least"), [(1, 10), (2, 20), (3, 40), (4, 80), (5, 100), (50, 100), (2**31 - 1, 100)])
def test_the_wait_doubles_up_to_a_limit_and_is_never_less(settings: Settings, attempt: int, least: float) -> None:
    """As documented: doubles, and up to as much again as the first wait is added."""
    for handler in (None, handler_that_waits(None)):
        waits = [seconds(handler, settings, attempt) for _ in range(200)]
        assert min(waits) >= least
        assert max(waits) <= least + 10


def test_what_failed_together_does_not_come_back_together(settings: Settings) -> None:
    """C87: sixty waits, spread over more than a second, at least forty different ones to the millisecond."""
    waits = [seconds(None, settings, 1) for _ in range(60)]
    assert max(waits) - min(waits) > 1
    assert len({round(wait, 3) for wait in waits}) >= 40


@pytest.mark.parametrize("name", ["FENCEPOST_BACKOFF", "FENCEPOST_BACKOFF_MAX"])
def test_no_wait_at_all_is_allowed(settings: Settings, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """For tests, and for who wants it."""
    monkeypatch.setenv("FENCEPOST_BACKOFF", "0")
    monkeypatch.setenv(name, "0")
    assert seconds(None, read(), 7) == 0


def test_a_handlers_own_wait_is_asked_with_the_attempt(settings: Settings) -> None:
    """Tenacity's vocabulary, as its own retries use it."""
    handler = handler_that_waits(tenacity.wait_exponential(multiplier=3))
    assert [seconds(handler, settings, attempt) for attempt in (1, 2, 3)] == [3, 6, 12]
    chained = handler_that_waits(tenacity.wait_chain(*[tenacity.wait_fixed(1)] * 2, tenacity.wait_fixed(9)))
    assert [seconds(chained, settings, attempt) for attempt in (1, 2, 3, 4)] == [1, 1, 9, 9]


def raises(error: BaseException) -> Callable[[], Any]:
    def answer() -> Any:
        raise error

    return answer


NONSENSE: dict[str, Callable[[], Any]] = {
    "an error": raises(ValueError("x")),
    "a recursion": raises(RecursionError("x")),
    "the end of the process": raises(SystemExit(3)),
    "None": lambda: None,
    "a text": lambda: "soon",
    "infinity": lambda: float("inf"),
    "nan": lambda: float("nan"),
    "more than any date": lambda: 1e300,
}


@pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE)
def test_a_wait_object_that_answers_nonsense_does_not_cost_the_retry(settings: Settings, answer: Callable[[], Any]) -> None:
    """The default applies, and nothing of the user's gets out."""
    assert 10 <= seconds(handler_that_waits(Wait(answer)), settings, 1) <= 20


@pytest.mark.parametrize("answer", [-1, -0.0, 0, False])
def test_a_negative_wait_is_none(settings: Settings, answer: float) -> None:
    """At once."""
    assert seconds(handler_that_waits(Wait(lambda: answer)), settings, 1) == 0
