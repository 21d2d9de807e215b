"""Write report.md and its plots from results.json."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from article.lab import HERE, Facts
from article.page import wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARTS = (
    "tenant",
    "cleaning",
    "poison",
    "death",
    "lease",
    "vacuum",
    "claims",
    "policy",
    "machine",
    "waits",
    "workers",
    "pooler",
)
"""As in ONLY=tenant,poison: the article's eight, and what it did not measure."""
OF_THE_ARTICLE = 8

RESULTS = HERE / "results.json"
REPORT = HERE / "report.md"

OPENING = """\
# The article's troubles, had again

An article of October 2026 measured what goes wrong with background workers in PostgreSQL. `make article` has all of it again,
in the article's designs, each a file in [designs/](designs), and in Fencepost, and writes this page; [README.md](README.md)
says how. The numbers that were found here are those of [results.json](results.json).
"""
BETWEEN = """\
# What the article did not measure
"""


def part(name: str) -> ModuleType:
    """Return the module of a part."""
    return importlib.import_module(f"article.parts.{name}")


def read(results: Path = RESULTS) -> dict[str, Any]:
    """Return what has been measured so far."""
    known: dict[str, Any] = json.loads(results.read_text(encoding="utf-8")) if results.exists() else {"parts": {}}
    return known


def text(results: dict[str, Any]) -> str:
    """Return the page."""
    lines = [OPENING, _about(results)]
    for place, name in enumerate(PARTS, 1):
        if place == OF_THE_ARTICLE + 1:
            lines.append(BETWEEN)
        module = part(name)
        lines.append(f"## {place}. {module.TITLE}\n")
        measured = results["parts"].get(name)
        if measured is None:
            lines.append("Not measured.\n")
            continue
        if measured.get("missing"):
            lines.append(f"Not measured: {measured['missing']}.\n")
            continue
        lines.append(module.tell(measured["facts"]).text() + "\n")
        if hasattr(module, "draw"):
            lines.append(f"![{module.TITLE}]({name}.png)\n")
        if measured.get("note"):
            lines.append(wrapped(measured["note"]) + "\n")
        if measured["scale"] != 1:
            lines.append(f"Measured at {measured['scale']:g} of the article's size.\n")
    return "\n".join(lines)


def write(results: dict[str, Any], folder: Path = HERE) -> None:
    """Write the page, and the plots of the parts that have one."""
    (folder / REPORT.name).write_text(text(results), encoding="utf-8")
    for name in PARTS:
        module, measured = part(name), results["parts"].get(name)
        if hasattr(module, "draw") and measured and not measured.get("missing"):
            _plot(folder / f"{name}.png", module.draw, measured["facts"])


def _plot(file: Path, draw: Callable[[Axes, Facts], None], facts: Facts) -> None:
    import matplotlib as mpl  # noqa: PLC0415  # the page alone can be made without it

    mpl.use("agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415  # as above; and only once it knows where to draw

    with plt.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
        draw(axes, facts)
        # No date in it: the same results are the same file.
        figure.savefig(file, dpi=110, metadata={"Software": None})
        plt.close(figure)


def _about(results: dict[str, Any]) -> str:
    about = results.get("about")
    if about is None:
        return ""
    here = (
        f"PostgreSQL {about['postgresql']} with default settings, {about['where']}; Python {about['python']}, psycopg "
        f"{about['psycopg']}, psycopg_pool {about['psycopg_pool']}; {about['cores']} cores, with other work beside it. The "
        "article's: PostgreSQL 17.10 in a container with default settings, Python 3.12, psycopg 3.3.6, psycopg_pool 3.3.3."
    )
    return wrapped(here) + "\n"
