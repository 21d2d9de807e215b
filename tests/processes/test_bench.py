"""What `make bench` measures still runs: two thousand jobs, by bare SQL and by Fencepost."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from support.servers import Server

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize(("slug", "kind"), [("fencepost", "noop"), ("pgbench_writes", "row")])
def test_jobs_are_measured(slug: str, kind: str, own_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    lab = import_module("speed.lab").Lab(own_server, [], jobs=2000)
    assert import_module("speed.parts.throughput").run(lab, lab.peer(slug), 2, kind) > 0
