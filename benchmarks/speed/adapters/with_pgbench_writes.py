# /// script
# [tool.speed]
# manner = "bare SQL"
# batches = "nothing: a claim, and a transaction that writes a row and finishes"
# crash = "is no queue: no process of a job, no heartbeat"
# setup = [["{bin}/fencepost", "migrate"], ["{python}", "{adapter}", "setup"]]
# worker = ["{python}", "{adapter}", "{programs}/pgbench", "{n}"]
# login = "fencepost_worker"
# left = "select count(*) from fencepost.jobs where status <> 'done'"
# throughput = false
# latency = false
# ///
"""A claim, and the transaction of a job that writes a row and finishes in it: all of its statements in one message."""

from __future__ import annotations

import bare
import ours

if __name__ == "__main__":
    if not ours.was_asked():
        in_order = [bare.sql(verb) for verb in ("begin", "limits", "context")]
        in_order += [ours.WRITE % ":id", *bare.sql("finish_and_commit").split(";\n")]
        bare.work(bare.claim() + "\\startpipeline\n" + ";\n".join(in_order) + ";\n\\endpipeline\n")
