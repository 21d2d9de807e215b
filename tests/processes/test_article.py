"""The laboratory of `benchmarks/article` still runs, a thousandth of it, and its page is what its results say."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from support.servers import Installation, Server

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module("article.report")


def test_the_page_of_the_article_is_what_its_results_say(report: ModuleType) -> None:
    """Who changes what a part tells runs `make article ONLY=report`."""
    assert report.REPORT.read_text(encoding="utf-8") == report.text(report.read())


TOLD = {
    "poison": lambda facts: (
        [(row["runs"], row["attempts"], row["behind"]) for row in facts.values()]
        == [(10, 0, "queued"), (3, 3, "done"), (3, 3, "done"), (3, 3, "done")]
    ),
    "claims": lambda facts: [len(row["median"]) for row in facts["rows"].values()] == [10] * 6,
}
"""The parts that take least, and what they find."""


@pytest.mark.parametrize("name", TOLD)
def test_a_part_of_the_article_still_runs(
    name: str, report: ModuleType, server: Server, installation: tuple[Installation, Path]
) -> None:
    """With supervisors that are forked, and what it tells can be told."""
    lab = import_module("article.lab").Lab(server, installation, scale=0.001, command=None)
    part: Any = report.part(name)
    facts = part.measure(lab)
    assert TOLD[name](facts), facts
    assert f"## {report.PARTS.index(name) + 1}. {part.TITLE}" in report.text({"parts": {name: {"scale": 1, "facts": facts}}})
