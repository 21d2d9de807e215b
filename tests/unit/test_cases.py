"""The page of accidents names tests that are there, and that say which accident they are."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (?:process )?([A-G]\d+) \| [^|]+ \| ([^|]+) \|$")
ROWS = [match for line in (ROOT / "docs" / "cases.md").read_text().splitlines() if (match := ROW.match(line))]


@cache
def docstrings(path: str) -> dict[str, str]:
    """Return the docstrings of a file's tests by their names."""
    nodes = ast.walk(ast.parse((ROOT / path).read_text()))
    return {node.name: ast.get_docstring(node) or "" for node in nodes if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1])
def test_each_accident_has_tests_that_bear_its_id_or_a_reason_why_not(row: re.Match[str]):
    named = re.findall(r"`(tests/\S+)::(\w+)`", row[2])
    assert named or row[2].startswith("not tested"), row[2]
    for path, test in named:
        assert re.search(rf"\b{row[1]}\b", docstrings(path)[test]), f"{path}::{test} does not say {row[1]}"


def test_no_accident_is_left_out():
    assert len(ROWS) == len({row[0] for row in ROWS}) >= 140
