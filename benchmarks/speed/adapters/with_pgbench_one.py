# /// script
# [tool.speed]
# manner = "bare SQL"
# batches = "the finish of a job and the claim of the next, in one statement"
# crash = "is no queue: no process of a job, no heartbeat"
# setup = [["{bin}/fencepost", "migrate"], ["{python}", "{adapter}", "setup"]]
# worker = ["{python}", "{adapter}", "{programs}/pgbench", "{n}"]
# login = "fencepost_worker"
# left = "select count(*) from fencepost.jobs where status <> 'done'"
# latency = false
# ///
"""Fencepost's finish and its next claim as one statement, as its workers send them while work is waiting."""

from __future__ import annotations

import bare
import ours

if __name__ == "__main__":
    if not ours.was_asked():
        bare.work(bare.finish_and_claim())
