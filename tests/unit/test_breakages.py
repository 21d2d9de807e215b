"""What is broken on purpose is still there to be broken: else nothing is, and the tests that are to find it pass."""

from __future__ import annotations

from importlib import import_module
from importlib.resources import files
from pathlib import Path
from types import ModuleType

import pytest

from torture.broken import BREAKAGES as OF_TORTURE

ROOT = Path(__file__).parents[2]


@pytest.fixture
def of_tests(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of `make breakages`, which is a program."""
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "soak"))
    return import_module("breakages")


def test_each_breakage_finds_its_text_once(of_tests: ModuleType) -> None:
    """Twice, it could leave what it is about in one of the two places."""
    counts = {one.name: (ROOT / one.file).read_text().count(one.text) for one in of_tests.BREAKAGES}
    assert counts == dict.fromkeys(counts, 1)


@pytest.mark.parametrize("name", OF_TORTURE)
def test_each_breakage_of_the_torture_run_finds_its_text(name: str) -> None:
    """In one of the statements."""
    statements = [file for file in files("fencepost.jobs").iterdir() if file.name.endswith(".sql")]
    assert [file.name for file in statements if OF_TORTURE[name].text in file.read_text()]
