"""A claim beside ten million jobs that wait, beside those that are finished, and behind an old snapshot."""

from __future__ import annotations

from speed.lab import Facts, Lab
from speed.page import number, table
from speed.parts import claims


def measure(lab: Lab) -> Facts:
    """Measure on a database of its own."""
    with lab.place(lab.peer("fencepost")) as place:
        return claims.measure(place.database)


def tell(facts: Facts) -> str:
    """Tell of it."""
    waiting, finished, snapshot = facts["backlog"], facts["finished"], facts["snapshot"]
    rows = [
        [f"{number(waiting['queued'])} jobs wait, against few", *_both(waiting["ms"], "ms"), *_both(waiting["buffers"])],
        [
            f"the last tenth of {number(snapshot['jobs'])}, an old snapshot held, against the first",
            *_both([snapshot["ms"][0], snapshot["ms"][-1]], "ms"),
            "",
            "",
        ],
        *(
            [f"{number(size)} jobs are finished, against none", "", "", *_both([finished["buffers"][0], buffers])]
            for size, buffers in zip(finished["finished"][1:], finished["buffers"][1:], strict=True)
        ),
    ]
    return table(["", "a claim then", "and now", "buffers then", "and now"], rows)


def _both(found: list[float], unit: str = "") -> list[str]:
    return [f"{number(value)} {unit}".strip() for value in found]
