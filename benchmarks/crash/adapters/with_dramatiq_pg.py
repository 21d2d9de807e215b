# /// script
# [tool.crash]
# several = true
# rescue = "none to set: an advisory lock of the session tells who lives"
# setup = [["{bin}/dramatiq-pg", "init"]]
# worker = ["{bin}/dramatiq", "with_dramatiq_pg", "--processes=2", "--threads=2"]
# jobs = """
# select message->'kwargs'->>'label',
#     case state::text when 'queued' then 'waiting' when 'consumed' then 'running' when 'done' then 'done' else 'dead' end,
#     coalesce(message->'options'->>'retries', '0')
# from dramatiq.queue"""
# ///
"""The older dramatiq on PostgreSQL, two processes of two threads. Two retries are three runs."""

from __future__ import annotations

import accident
import dramatiq
from dramatiq_pg import PostgresBroker

dramatiq.set_broker(PostgresBroker(url=accident.DATABASE_URL))

THRICE = {"max_retries": 2, "min_backoff": 1000, "max_backoff": 1000}


@dramatiq.actor(**THRICE)
def work(**payload: object) -> None:
    accident.work(**payload)


@dramatiq.actor(time_limit=accident.POISON_LIMIT * 1000, **THRICE)
def poison(**payload: object) -> None:
    accident.poison(**payload)


if __name__ == "__main__":
    for payload in accident.payloads():
        (poison if "way" in payload else work).send(**payload)
