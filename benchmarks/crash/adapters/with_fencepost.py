# /// script
# [tool.crash]
# several = true
# rescue = "lease 10 s (default 60 s), heartbeat 2 s"
# setup = [["{bin}/fencepost", "migrate"]]
# worker = ["{bin}/fencepost", "run"]
# jobs = """
# select payload->>'label', case status when 'queued' then 'waiting' when 'cancelled' then 'dead' else status end,
#     attempts || '/' || max_attempts
# from fencepost.jobs"""
#
# [tool.crash.env]
# FENCEPOST_HANDLERS = "with_fencepost"
# FENCEPOST_CONCURRENCY = "4"
# FENCEPOST_LEASE = "10s"
# FENCEPOST_HEARTBEAT = "2s"
# FENCEPOST_MAX_ATTEMPTS = "3"
# FENCEPOST_BACKOFF = "1s"
# FENCEPOST_TENANT_SETTING = ""
# ///
"""Fencepost, as `fencepost run` runs it in a container, without tenants.

It allows shorter leases; the one chosen is as long as the others'. Runs in the project's own environment.
"""

from __future__ import annotations

import accident
import psycopg

from fencepost import Job, enqueue, handler


@handler("work", tenantless=True)
def work(job: Job, **payload: object) -> None:  # noqa: ARG001  # a handler is given its job
    accident.work(**payload)


@handler("poison", tenantless=True, max_runtime=accident.POISON_LIMIT)
def poison(job: Job, **payload: object) -> None:  # noqa: ARG001
    accident.poison(**payload)


if __name__ == "__main__":
    with psycopg.connect(accident.DATABASE_URL, autocommit=True) as conn:
        for payload in accident.payloads():
            enqueue(conn, "poison" if "way" in payload else "work", payload)
