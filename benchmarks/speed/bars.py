"""What the numbers must show: each bar is a ratio or a limit, judged from what was found in one run.

Ratios are taken within each repetition, since the machine drifts between them; a bar holds if the median of them does.
"""

from __future__ import annotations

import operator
import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from speed.peer import PROCESS, SINGLE

Facts = dict[str, Any]

OURS, TWO = "fencepost", "pgbench_two"
SLOWEST = ("python_pq", "horsies", "chancy")
"""The slowest as they were found once, and not as they are found: who gets quicker must not leave them."""

SENSES: dict[str, Callable[[float, float], bool]] = {"≥": operator.ge, "≤": operator.le, ">": operator.gt, "<": operator.lt}


@dataclass(frozen=True)
class Bar:
    """What a part must show; `found` reads a value for each repetition from the part's facts."""

    part: str
    name: str
    sense: str
    bar: float
    unit: str
    found: Callable[[Facts], list[float]]


@dataclass(frozen=True)
class Judged:
    """A bar and what was found. Without a value it was not measured, and does not hold."""

    name: str
    value: float | None
    least: float | None
    most: float | None
    bar: str
    holds: bool


def judge(parts: Facts) -> list[dict[str, Any]]:
    """Judge all bars by the facts of the parts."""
    return [asdict(_judged(bar, parts.get(bar.part))) for bar in BARS]


def _judged(bar: Bar, part: Facts | None) -> Judged:
    text = f"{bar.sense} {bar.bar:g}{bar.unit}"
    found = bar.found(part["facts"]) if part is not None else []
    if not found:
        return Judged(bar.name, None, None, None, text, holds=False)
    value, least, most = (float(f"{one:.4g}") for one in (statistics.median(found), min(found), max(found)))
    return Judged(bar.name, value, least, most, text, holds=SENSES[bar.sense](value, bar.bar))


# ---- throughput


def _against(n: int, others: Callable[[Facts], Iterable[str]]) -> Callable[[Facts], list[float]]:
    """Compare with the quickest of `others` in each repetition; with none of them measured, there is nothing to say."""

    def found(facts: Facts) -> list[float]:
        rows = facts["rows"]
        theirs = [rows[slug][str(n)] for slug in others(facts) if rows.get(slug, {}).get(str(n))]
        ours = rows.get(OURS, {}).get(str(n), [])
        return [mine / max(rates) for mine, *rates in zip(ours, *theirs, strict=True)] if ours and theirs else []

    return found


def _of_manner(manner: str) -> Callable[[Facts], Iterable[str]]:
    return lambda facts: [slug for slug, its in facts["manners"].items() if its == manner and slug != OURS]


def _these(*slugs: str) -> Callable[[Facts], Iterable[str]]:
    return lambda _: slugs


# ---- the other parts


def _writes(facts: Facts) -> list[float]:
    rows = facts["rows"]
    return [ours / bare for ours, bare in zip(rows[OURS], rows["pgbench_writes"], strict=True)]


def _starts(what: str) -> Callable[[Facts], list[float]]:
    """Compare with the best peer."""

    def found(facts: Facts) -> list[float]:
        ours, theirs = facts["rows"].get(OURS), [row[what] for slug, row in facts["rows"].items() if slug != OURS]
        return [ours[what] / min(theirs)] if ours and theirs else []

    return found


def _idle(what: str) -> Callable[[Facts], list[float]]:
    return lambda facts: [facts["rows"][OURS][what]] if OURS in facts["rows"] else []


def _memory(facts: Facts) -> list[float]:
    return list(facts["MiB"]["preloaded"]["16"])


def _enqueue(facts: Facts) -> list[float]:
    return [copy / ours for copy, ours in zip(facts["seconds"]["copy"], facts["seconds"]["enqueue_many"], strict=True)]


def _finished(facts: Facts) -> list[float]:
    none, *many = facts["finished"]["buffers"]
    return [max(many) / none]


BARS = [
    Bar("throughput", "4 workers against bare SQL's claim and finish", "≥", 1.0, "", _against(4, _these(TWO))),
    Bar("throughput", "16 workers against bare SQL's claim and finish", "≥", 0.9, "", _against(16, _these(TWO))),
    Bar("throughput", "4 workers against the quickest job by job", ">", 1.0, "", _against(4, _of_manner(SINGLE))),
    Bar("throughput", "16 workers against the quickest job by job", ">", 1.0, "", _against(16, _of_manner(SINGLE))),
    Bar("throughput", "4 workers against the quickest with a process a job", "≥", 6, "", _against(4, _of_manner(PROCESS))),
    Bar("throughput", "16 workers against the quickest with a process a job", "≥", 6, "", _against(16, _of_manner(PROCESS))),
    Bar("throughput", "4 workers against the quickest of the slowest", "≥", 15, "", _against(4, _these(*SLOWEST))),
    Bar(
        "throughput",
        "16 workers against the quickest of the slowest",
        "≥",
        15,
        "",
        _against(16, _these(*SLOWEST)),
    ),
    Bar("writes", "4 workers that write a row against bare SQL", "≥", 0.8, "", _writes),
    Bar("latency", "enqueue to start, p50 against the best peer's", "<", 1, "", _starts("p50")),
    Bar("latency", "enqueue to start, p99 against the best peer's", "≤", 2, "", _starts("p99")),
    Bar("idle", "idle for a minute, statements", "≤", 70, "", _idle("statements")),
    Bar("idle", "idle for a minute, processor time", "≤", 0.3, " s", _idle("cpu")),
    Bar("heartbeat", "a heartbeat for 1,000 jobs, statements", "≤", 1, "", lambda facts: [facts["statements"]]),
    Bar("heartbeat", "a heartbeat for 1,000 jobs, time", "≤", 20, " ms", lambda facts: facts["ms"]),
    Bar("heartbeat", "the table after an hour's heartbeats against before", "≤", 1, "", lambda facts: [facts["grown"]]),
    Bar("respawn", "a worker killed until its slot runs the next job", "≤", 50, " ms", lambda facts: facts["ms"]["preloaded"]),
    Bar("memory", "proportional memory of an idle worker, one of 16", "≤", 12, " MiB", _memory),
    Bar("enqueue", "enqueue_many against a bare COPY", "≥", 0.8, "", _enqueue),
    Bar(
        "claims",
        "a claim behind an old snapshot, last against first tenth",
        "≤",
        1.2,
        "",
        lambda facts: [facts["snapshot"]["ratio"]],
    ),
    Bar("claims", "a claim with ten million jobs waiting against few", "≤", 1.2, "", lambda facts: [facts["backlog"]["ratio"]]),
    Bar("claims", "a claim's buffers with many jobs finished against none", "≤", 1.2, "", _finished),
    Bar("parent", "the supervisor's share of a core", "≤", 2, " %", lambda facts: facts["share"]),
]
