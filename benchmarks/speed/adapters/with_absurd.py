# /// script
# [tool.speed]
# manner = "job by job"
# batches = "claims of as many as it has room for; acknowledges each"
# crash = "the running jobs run again after 120 s"
# worker = ["{python}", "{adapter}", "worker"]
# left = "select count(*) from absurd.t_jobs where state <> 'completed'"
# pace = 0.2
# ///
"""absurd, by its Python SDK, as many threads as are asked for, which share a connection.

Its own command fetches the schema from GitHub; django-absurd, a package on PyPI, brings the same SQL with it.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import psycopg
import stamps
from absurd_sdk import Absurd, TaskContext

SCHEMA = "migrations/0001_initial_0_5_0.sql"
SPAWN = """
select count(*)
from generate_series(1, %s) number, absurd.spawn_task('jobs', 'noop', jsonb_build_object('number', number))"""

absurd = Absurd(stamps.DATABASE_URL, queue_name="jobs")


@absurd.register_task(name="noop")
def noop(params: dict, ctx: TaskContext) -> None:  # a task is given its context
    pass


@absurd.register_task(name="stamp")
def stamp(params: dict, ctx: TaskContext) -> None:  # noqa: ARG001  # as absurd calls it
    stamps.stamp(**params)


def set_up() -> None:
    package = importlib.util.find_spec("django_absurd")
    schema = Path(package.origin).with_name("migrations") / Path(SCHEMA).name
    with psycopg.connect(stamps.DATABASE_URL) as conn:
        conn.execute(schema.read_text(encoding="utf-8"))
    absurd.create_queue("jobs")


if __name__ == "__main__":
    if sys.argv[1] == "setup":
        set_up()
    elif sys.argv[1] == "enqueue":
        with psycopg.connect(stamps.DATABASE_URL) as conn:
            conn.execute(SPAWN, [stamps.how_many()])
    elif sys.argv[1] == "worker":
        absurd.start_worker(concurrency=stamps.AT_A_TIME)
    else:
        for number in stamps.paced():
            absurd.spawn("stamp", {"number": number})
