# /// script
# [tool.crash]
# several = true
# rescue = "heartbeat lives 10 s (default 60 s), maintenance every 3 s (default 30 s)"
# setup = [["{bin}/dramatiq-postgres", "--dsn={database}", "init"]]
# worker = ["{bin}/dramatiq", "with_dramatiq_postgres", "--processes=2", "--threads=2"]
# jobs = """
# select message->'kwargs'->>'label',
#     case state::text when 'queued' then 'waiting' when 'consumed' then 'running' when 'done' then 'done' else 'dead' end,
#     coalesce(message->'options'->>'retries', '0')
# from dramatiq.queue"""
# ///
"""dramatiq on PostgreSQL, two processes of two threads. What is acknowledged leaves the table.

Two retries are three runs. Attempts are those that the message knows of: retries after an error.
"""

from __future__ import annotations

import accident
import dramatiq
from dramatiq_postgres import PostgresBroker

broker = PostgresBroker(url=accident.DATABASE_URL, heartbeat_interval=2.0, heartbeat_ttl=10.0, maintenance_interval=3.0)
dramatiq.set_broker(broker)

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
    broker.close()
