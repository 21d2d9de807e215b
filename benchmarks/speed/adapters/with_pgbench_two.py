# /// script
# [tool.speed]
# manner = "bare SQL"
# batches = "nothing: a claim and a finish, each in a transaction of its own"
# crash = "is no queue: no process of a job, no heartbeat"
# setup = [["{bin}/fencepost", "migrate"], ["{python}", "{adapter}", "setup"]]
# worker = ["{python}", "{adapter}", "{programs}/pgbench", "{n}"]
# login = "fencepost_worker"
# left = "select count(*) from fencepost.jobs where status <> 'done'"
# latency = false
# ///
"""Fencepost's claim and finish as two transactions."""

from __future__ import annotations

import bare
import ours

if __name__ == "__main__":
    if not ours.was_asked():
        bare.work(bare.claim() + bare.sql("finish") + ";\n")
