# /// script
# [tool.crash]
# several = false
# rescue = "claim timeout 10 s (default 120 s)"
# worker = ["{python}", "{adapter}", "worker"]
# jobs = """
# select params->>'label',
#     case when state in ('pending', 'sleeping') then 'waiting' when state = 'running' then 'running'
#         when state = 'completed' then 'done' else 'dead' end,
#     attempts || '/' || max_attempts
# from absurd.t_jobs"""
# ///
"""absurd, by its Python SDK, four threads.

Its own command fetches the schema from GitHub; django-absurd, a package on PyPI, brings the same SQL with it.
The claim timeout must be longer than a step: 10 s for jobs of 8 s.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import accident
import psycopg
from absurd_sdk import Absurd, TaskContext

SCHEMA = "migrations/0001_initial_0_5_0.sql"

absurd = Absurd(accident.DATABASE_URL, queue_name="jobs")


@absurd.register_task(name="work", default_max_attempts=3)
def work(params: dict, ctx: TaskContext) -> None:  # noqa: ARG001  # a task is given its context
    accident.work(**params)


@absurd.register_task(name="poison", default_max_attempts=3)
def poison(params: dict, ctx: TaskContext) -> None:  # noqa: ARG001
    accident.poison(**params)


def set_up() -> None:
    package = importlib.util.find_spec("django_absurd")
    schema = Path(package.origin).with_name("migrations") / Path(SCHEMA).name
    with psycopg.connect(accident.DATABASE_URL) as conn:
        conn.execute(schema.read_text(encoding="utf-8"))
    absurd.create_queue("jobs")


if __name__ == "__main__":
    if sys.argv[1] == "setup":
        set_up()
    elif sys.argv[1] == "worker":
        absurd.start_worker(concurrency=4, claim_timeout=10)
    else:
        for payload in accident.payloads():
            strategy = {"kind": "fixed", "base_seconds": 1}
            absurd.spawn("poison" if "way" in payload else "work", payload, max_attempts=3, retry_strategy=strategy)
