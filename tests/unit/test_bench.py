"""What `make bench` says of its numbers: a bar holds or does not, and the page is what its results say."""

from __future__ import annotations

import copy
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def at(one: float, four: float, sixteen: float) -> dict[str, list[float]]:
    """Return rates of three repetitions, of which the last ones count for nothing."""
    return {"1": [one] * 3, "4": [four, four, four * 5], "16": [sixteen, sixteen, sixteen / 5]}


MANNERS = {
    "fencepost": "job by job",
    "pgbench_two": "bare SQL",
    "graphile_worker": "job by job",
    "celery": "a process a job",
    "python_pq": "a process a job",
    "pg_boss": "batches",
}
GOOD: dict[str, Any] = {
    "throughput": {
        "manners": MANNERS,
        "rows": {
            "fencepost": at(2000, 4000, 4000),
            "pgbench_two": at(1500, 3900, 4400),
            "graphile_worker": at(1500, 3900, 3900),
            "celery": at(300, 660, 660),
            "python_pq": at(90, 260, 260),
            "pg_boss": at(9000, 30000, 30000),
        },
    },
    "writes": {"rows": {"fencepost": [900.0], "pgbench_writes": [1100.0]}},
    "latency": {"rows": {"fencepost": {"p50": 2.5, "p99": 7.9}, "oban": {"p50": 2.6, "p99": 5}, "awa": {"p50": 5, "p99": 4}}},
    "idle": {"rows": {"fencepost": {"statements": 70, "cpu": 0.3}, "oban": {"statements": 1, "cpu": 0.1}}},
    "heartbeat": {"statements": 1.0, "ms": [19.0, 20, 300], "grown": 1.0},
    "respawn": {"ms": {"preloaded": [49.0, 50, 300], "not preloaded": [300.0]}},
    "memory": {"MiB": {"preloaded": {"4": [40.0], "16": [11.0, 12, 13]}, "not preloaded": {"4": [40.0], "16": [40.0]}}},
    "parent": {"share": [1.0, 2.0, 3.0]},
    "enqueue": {"seconds": {"copy": [1.0, 0.8, 1.0], "enqueue_many": [1.0, 1.0, 2.0]}},
    "claims": {"snapshot": {"ratio": 1.2}, "backlog": {"ratio": 1.2}, "finished": {"buffers": [10, 9, 12]}},
}
BAD: dict[str, tuple[str, Any]] = {
    "4 workers against bare SQL's claim and finish": ("throughput.rows.pgbench_two.4", [4010, 4010, 4010]),
    "16 workers against bare SQL's claim and finish": ("throughput.rows.pgbench_two.16", [4450] * 3),
    "4 workers against the quickest job by job": ("throughput.rows.graphile_worker.4", [4000, 4000, 4000]),
    "16 workers against the quickest job by job": ("throughput.rows.graphile_worker.16", [4000] * 3),
    "4 workers against the quickest with a process a job": ("throughput.rows.celery.4", [670] * 3),
    "16 workers against the quickest with a process a job": ("throughput.rows.celery.16", [670] * 3),
    "4 workers against the quickest of the slowest": ("throughput.rows.python_pq.4", [270] * 3),
    "16 workers against the quickest of the slowest": ("throughput.rows.python_pq.16", [270] * 3),
    "4 workers that write a row against bare SQL": ("writes.rows.fencepost", [870.0]),
    "enqueue to start, p50 against the best peer's": ("latency.rows.fencepost.p50", 2.6),
    "enqueue to start, p99 against the best peer's": ("latency.rows.fencepost.p99", 8.1),
    "idle for a minute, statements": ("idle.rows.fencepost.statements", 71),
    "idle for a minute, processor time": ("idle.rows.fencepost.cpu", 0.31),
    "a heartbeat for 1,000 jobs, statements": ("heartbeat.statements", 2.0),
    "a heartbeat for 1,000 jobs, time": ("heartbeat.ms", [20.1]),
    "the table after an hour's heartbeats against before": ("heartbeat.grown", 1.1),
    "a worker killed until its slot runs the next job": ("respawn.ms.preloaded", [51.0, 52, 1]),
    "proportional memory of an idle worker, one of 16": ("memory.MiB.preloaded.16", [12.1]),
    "enqueue_many against a bare COPY": ("enqueue.seconds.enqueue_many", [1.3, 1.3, 1.3]),
    "a claim behind an old snapshot, last against first tenth": ("claims.snapshot.ratio", 1.21),
    "a claim with ten million jobs waiting against few": ("claims.backlog.ratio", 1.21),
    "a claim's buffers with many jobs finished against none": ("claims.finished.buffers", [10, 13, 10]),
    "the supervisor's share of a core": ("parent.share", [2.1]),
}
"""For each bar what breaks it, and no other."""


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module("speed.page")


def judged(bench: ModuleType, parts: dict[str, Any]) -> dict[str, Any]:
    return {bar["name"]: bar for bar in bench.judge({name: {"facts": facts} for name, facts in parts.items()})}


def test_bars_hold_up_to_the_very_bar(bench: ModuleType) -> None:
    bars = judged(bench, GOOD)
    assert [name for name, bar in bars.items() if not bar["holds"]] == []
    assert bars["4 workers against bare SQL's claim and finish"]["value"] == pytest.approx(1.026, abs=0.001)


def test_each_bar_has_what_breaks_it(bench: ModuleType) -> None:
    assert set(judged(bench, {})) == set(BAD)


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_result_breaks_its_bar_alone(name: str, bench: ModuleType) -> None:
    wrong = copy.deepcopy(GOOD)
    path, value = BAD[name]
    *way, last = path.split(".")
    place = wrong
    for step in way:
        place = place[step]
    assert last in place
    place[last] = value
    assert [name for name, bar in judged(bench, wrong).items() if not bar["holds"]] == [name]


def test_what_was_not_measured_does_not_hold(bench: ModuleType) -> None:
    missing = {**GOOD, "throughput": {**GOOD["throughput"], "rows": {"fencepost": at(1, 1, 1)}}}
    del missing["idle"]
    bars = judged(bench, missing)
    assert [bars[name]["value"] for name in BAD if "workers against" in name or "idle for" in name] == [None] * 10
    assert not any(bar["holds"] for bar in bars.values() if bar["value"] is None)


def test_the_page_is_what_the_results_say(bench: ModuleType) -> None:
    """Who changes what a part tells, an adapter's words or the bars runs `make bench ONLY=report`."""
    results = bench.read()
    assert bench.PAGE.read_text(encoding="utf-8") == bench.text(results)
    assert results.get("bars", bench.judge({})) == bench.judge(results["parts"])
