"""docs/protocol.md names each rule once, and for each a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs" / "protocol.md").read_text(encoding="utf-8")
RULES = dict(re.findall(r"^\*\*(\d+)\. (.*?)(?=\n\n|\Z)", PAGE, flags=re.MULTILINE | re.DOTALL))


def test_the_rules_are_numbered_through() -> None:
    """Code and tests name them so."""
    assert list(RULES) == [str(number) for number in range(1, 24)]


def test_each_rule_names_tests_that_exist() -> None:
    """And one that says *both* has its rule's number in its name."""
    defined = {
        name
        for file in (TOP / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    }
    named = {number: re.findall(r"`(test_\w+)`", text) for number, text in RULES.items()}
    assert all(named.values())
    assert {name for tests in named.values() for name in tests} - defined == set()
    for number, text in RULES.items():
        for name in re.findall(r"`(test_\w+)`\s\(\*both\*\)", text):
            assert name.startswith(f"test_rule_{number}_")


def test_each_rule_that_code_or_tests_name_is_on_the_page() -> None:
    """In any of their ways of writing it."""
    folders = ("fencepost", "supervisor", "worker", "migrations", "tests", "docs/model")
    files = [file for folder in folders for file in (TOP / folder).rglob("*.py")]
    said = [re.findall(r"\b[Rr]ules? (\d+)(?: and (\d+))?", file.read_text(encoding="utf-8")) for file in files]
    named = {number for found in said for pair in found for number in pair if number}
    assert len(named) > 10
    assert named - set(RULES) == set()
