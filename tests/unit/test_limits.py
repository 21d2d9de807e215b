"""The supervisor's limits: what a job has lowered is put back, as far as that goes, and what someone has raised stays."""

from __future__ import annotations

import resource

import pytest

from fencepost.supervisor.limits import Limits

Pair = tuple[int, int]


@pytest.mark.parametrize(
    ("found", "in_the_end", "privileged"),
    [
        ((5, 4000), (1000, 4000), False),
        ((5, 50), (50, 50), False),
        ((5, 50), (1000, 4000), True),
        ((2000, 4000), (2000, 4000), False),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), (resource.RLIM_INFINITY, resource.RLIM_INFINITY), False),
    ],
    ids=["lowered", "lowered for good", "lowered for good, and we are root", "raised", "taken away"],
)
def test_a_limit_that_was_lowered_is_put_back(
    monkeypatch: pytest.MonkeyPatch, found: Pair, in_the_end: Pair, *, privileged: bool
) -> None:
    """And no more than once where it can't be."""
    limits: dict[int, Pair] = {}
    tried: list[Pair] = []

    def put(number: int, pair: Pair) -> None:
        tried.append(pair)
        if pair[1] > limits[number][1] and not privileged:
            raise ValueError("not allowed to raise maximum limit")
        limits[number] = pair

    monkeypatch.setattr(resource, "getrlimit", lambda number: limits.get(number, (1000, 4000)))
    monkeypatch.setattr(resource, "setrlimit", put)
    kept = Limits()
    limits[resource.RLIMIT_NOFILE] = found
    kept.keep()
    assert limits[resource.RLIMIT_NOFILE] == in_the_end
    tried.clear()
    kept.keep()
    assert tried == []
