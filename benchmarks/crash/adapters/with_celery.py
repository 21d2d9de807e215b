# /// script
# [tool.crash]
# several = true
# rescue = "none: this transport has no visibility timeout"
# worker = ["{bin}/celery", "-A", "with_celery", "worker", "--concurrency=4", "--without-gossip", "--without-mingle"]
# jobs = """
# select payload::jsonb->'headers'->>'kwargsrepr', case when visible then 'waiting' else 'gone' end,
#     payload::jsonb->'headers'->>'retries'
# from kombu_message"""
# ///
"""celery with kombu's SQLAlchemy transport, which its documentation calls experimental; prefork, late acknowledgement.

A message that was fetched is no longer visible, and nothing makes it so again: the table can't tell what became of it.
"""

from __future__ import annotations

import sys

import accident
from celery import Celery

app = Celery("with_celery", broker=accident.DATABASE_URL.replace("postgresql:", "sqla+postgresql+psycopg2:"))
app.conf.task_ignore_result = True
app.conf.worker_prefetch_multiplier = 1
app.conf.broker_connection_retry_on_startup = True

THRICE = {"max_retries": 2, "default_retry_delay": 1, "acks_late": True, "reject_on_worker_lost": True}


@app.task(name="work", **THRICE)
def work(**payload: object) -> None:
    accident.work(**payload)


@app.task(name="poison", time_limit=accident.POISON_LIMIT, **THRICE)
def poison(**payload: object) -> None:
    accident.poison(**payload)


if __name__ == "__main__":
    if sys.argv[1] == "setup":
        # The transport creates its tables when first used.
        work.apply_async(kwargs={"label": "first", "ticks": 1})
    else:
        for payload in accident.payloads():
            (poison if "way" in payload else work).apply_async(kwargs=payload)
