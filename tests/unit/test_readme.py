"""The README tells the truth where a test can tell."""

from __future__ import annotations

import re
from pathlib import Path

TOP = Path(__file__).parents[2]
README = (TOP / "README.md").read_text(encoding="utf-8")


def test_the_tests_that_the_readme_names_exist() -> None:
    """Each line of "what happens when" stands on one; a name may be cut with an ellipsis."""
    defined = {
        name
        for file in (TOP / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    }
    named = re.findall(r"`(test_\w+)(…?)`", README)
    assert len(named) > 15
    missing = [name for name, cut in named if not (any(one.startswith(name) for one in defined) if cut else name in defined)]
    assert missing == []
