"""Keep what was measured, and make the page and its plots of it."""

from __future__ import annotations

import importlib
import json
import os
import platform
import re
import statistics
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from speed.bars import judge
from speed.lab import Facts, Lab
from speed.peer import all_peers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results.json"
PAGE = HERE / "README.md"

PARTS = {
    "throughput": "throughput",
    "cost": "cost",
    "writes": "writes",
    "latency": "starts",
    "idle": "idle",
    "heartbeat": "heartbeat",
    "respawn": "respawn",
    "memory": "memory",
    "parent": "parent",
    "enqueue": "enqueuing",
    "notify": "notifying",
    "claims": "claiming",
}
"""As in ONLY=throughput,idle, each with its module."""


def part(name: str) -> ModuleType:
    """Return the module of a part."""
    return importlib.import_module(f"speed.parts.{PARTS[name]}")


def read(results: Path = RESULTS) -> dict[str, Any]:
    """Return what has been measured so far."""
    known: dict[str, Any] = json.loads(results.read_text(encoding="utf-8")) if results.exists() else {"parts": {}}
    return known


def keep(results: Path, name: str, facts: Facts, lab: Lab) -> None:
    """Write one part's facts down, and judge by all that is known."""
    parts = {**read(results)["parts"], name: {"rounds": lab.rounds, "facts": _rounded(facts)}}
    known = {"about": _about(lab), "bars": judge(parts), "parts": parts}
    results.write_text(_lists_in_a_line(json.dumps(known, indent=1, ensure_ascii=False)) + "\n", encoding="utf-8")


def write(results: dict[str, Any], folder: Path = HERE) -> None:
    """Write the page, and the plots of the parts that have one."""
    (folder / PAGE.name).write_text(text(results), encoding="utf-8")
    for name, measured in results["parts"].items():
        if hasattr(part(name), "draw"):
            _plot(folder / f"{name}.png", part(name).draw, measured["facts"])


def text(results: dict[str, Any]) -> str:
    """Return the page as it stands, with what has been measured between its marks."""
    tables = {"about": _told(results.get("about")), "bars": _bars(judge(results["parts"])), "peers": _peers()}
    tables |= {name: part(name).tell(measured["facts"]) for name, measured in results["parts"].items()}
    marked = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- \2 end -->)", re.DOTALL)
    return marked.sub(
        lambda found: f"{found[1]}{tables.get(found[2], 'Not measured yet.')}\n{found[3]}", PAGE.read_text(encoding="utf-8")
    )


# ---- how things are written


def table(head: list[str], rows: list[list[str]]) -> str:
    """Write a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def spread(found: list[float]) -> str:
    """Write a median, and between what the repetitions lay."""
    if not found:
        return ""
    return f"{number(statistics.median(found))} ({number(min(found))} to {number(max(found))})"


def number(value: float) -> str:
    """Write a number to what can be told apart."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _bars(bars: list[dict[str, Any]]) -> str:
    rows = [
        [
            bar["name"],
            bar["bar"],
            "not measured" if bar["value"] is None else spread([bar[name] for name in ("least", "value", "most")]),
            "yes" if bar["holds"] else "no",
        ]
        for bar in bars
    ]
    return table(["", "bar", "found", "holds"], rows)


def _peers() -> str:
    rows = [[peer.name, peer.versions or "this checkout", peer.manner, peer.batches, peer.crash] for peer in all_peers()]
    return table(["", "versions", "how it works", "what goes together", "what a killed worker costs"], rows)


def _told(about: dict[str, Any] | None) -> str:
    if about is None:
        return "Not measured yet."
    return (
        f"PostgreSQL {about['postgresql']}, durable, its data on a disk; Python {about['python']}, psycopg {about['psycopg']}; "
        f"{about['cores']} cores, which server, workers and this share."
    )


def _about(lab: Lab) -> dict[str, Any]:
    return {
        "postgresql": lab.version(),
        "python": platform.python_version(),
        "psycopg": version("psycopg"),
        "cores": os.cpu_count(),
    }


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.4g}")
        case dict():
            return {name: _rounded(one) for name, one in value.items()}
        case list():
            return [_rounded(one) for one in value]
    return value


def _lists_in_a_line(text: str) -> str:
    """Write lists of numbers without a line for each."""
    return re.sub(r"\[[\s\d.,e+-]*\]", lambda found: re.sub(r"\s+", " ", found[0]).replace("[ ", "[").replace(" ]", "]"), text)


def _plot(file: Path, draw: Callable[[Axes, Facts], None], facts: Facts) -> None:
    import matplotlib as mpl  # noqa: PLC0415  # the page alone can be made without it

    mpl.use("agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415  # as above; and only once it knows where to draw

    with plt.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
        draw(axes, facts)
        # No date in it: the same results are the same file.
        figure.savefig(file, dpi=110, metadata={"Software": None})
        plt.close(figure)
