"""More workers than two, on jobs that do nothing."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from article.lab import PATIENCE, Facts, Lab, all_there
from article.page import Section, number
from support.databases import Database
from support.waiting import wait_until

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "One, four and sixteen workers"

WORKERS = (1, 4, 16)
JOBS = 2_000
DESIGNS = {"one transaction": "one_transaction", "claimed first, fenced": "fenced"}
FILL = "insert into jobs (kind) select 'nothing' from generate_series(1, %s)"
LEFT = "select count(*) from jobs where status in ('queued', 'running')"
SPAN = "select count(*) / extract(epoch from max(finished) - min(started))::float8 from job_runs"
OUR_FILL = "select count(fencepost.enqueue('nothing')) from generate_series(1, %s)"
OUR_LEFT = "select count(*) from fencepost.jobs where status in ('queued', 'running')"
OUR_SPAN = "select count(*) / extract(epoch from max(finished_at) - min(started_at))::float8 from fencepost.job_runs"


def measure(lab: Lab) -> Facts:
    """Have all workers ready, give them the jobs at once, and see how long these take from the first start to the last end."""
    counts = WORKERS if lab.scale == 1 else WORKERS[:2]
    jobs = lab.count(JOBS, 100)
    facts: Facts = {"jobs": jobs, "workers": list(counts), "rows": {name: [] for name in (*DESIGNS, "Fencepost")}}
    for workers in counts:
        for name, design in DESIGNS.items():
            with lab.database() as database, lab.workers(database.worker_url, design, count=workers):
                wait_until(partial(all_there, database, workers), within=PATIENCE, what="all workers")
                facts["rows"][name].append(_rate(database, jobs, FILL, LEFT, SPAN))
        with lab.database() as database, lab.supervisor(database.worker_url, concurrency=workers) as supervisor:
            supervisor.wait_for_workers(workers, within=PATIENCE)
            facts["rows"]["Fencepost"].append(_rate(database, jobs, OUR_FILL, OUR_LEFT, OUR_SPAN))
    return facts


def _rate(database: Database, jobs: int, fill: str, left: str, span: str) -> float:
    database.execute(fill, [jobs])
    wait_until(lambda: database.value(left) == 0, within=PATIENCE, what="the end of all jobs")
    return float(database.value(span))


def tell(facts: Facts) -> Section:
    """Tell of it."""
    rows, counts = facts["rows"], facts["workers"]
    naive, fenced, ours = (rows[name] for name in (*DESIGNS, "Fencepost"))
    shares = [f"{rate / other:.0%}" for rate, other in zip(ours, naive, strict=True)]
    return Section(
        article="not measured with more than two.",
        here=f"{number(facts['jobs'])} jobs that do nothing go at {_rates(naive)} a second with {_these(counts)} workers in "
        f"one transaction each, and at {_rates(fenced)} with a claim that is committed first.",
        fencepost=f"does {_rates(ours)} a second, {_and(shares)} of what one transaction does, with each claim counted and "
        "committed before its job, each run on record. Every worker is a process, here as in the naive designs, and shares "
        "the cores with all others and the server.",
        head=["jobs a second, with workers", *map(str, counts)],
        rows=[[name, *map(number, row)] for name, row in rows.items()],
    )


def draw(axes: Axes, facts: Facts) -> None:
    """Draw bars by the number of workers."""
    wide = 0.8 / len(facts["rows"])
    for place, (name, rates) in enumerate(facts["rows"].items()):
        at = [number_of + place * wide for number_of in range(len(rates))]
        axes.bar(at, rates, wide, label=name, color=("#b33", "#d88", "#161")[place])
    middle = wide * (len(facts["rows"]) - 1) / 2
    axes.set_xticks([place + middle for place in range(len(facts["workers"]))], [str(workers) for workers in facts["workers"]])
    axes.set_xlabel("workers")
    axes.set_ylabel("jobs a second")
    axes.legend(frameon=False)


def _rates(rates: list[float]) -> str:
    return _and([number(rate) for rate in rates])


def _these(counts: list[int]) -> str:
    return _and([str(workers) for workers in counts])


def _and(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
