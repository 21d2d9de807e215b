# /// script
# [tool.speed]
# manner = "job by job"
# batches = "claims of as many as it has room for; acknowledges each"
# crash = "the running jobs, for ever, unless they are given heartbeats, which are off by default"
# setup = [["{bin}/werk", "migrate", "--dsn={database}"]]
# worker = ["{bin}/werk", "worker", "with_pgwerk:app", "--concurrency={n}"]
# left = "select count(*) from pgwerk._pgwerk_jobs where status <> 'complete'"
# pace = 0.1
# ///
"""pgwerk, with its default worker: tasks in one process. The jobs are those of its fork worker."""

from __future__ import annotations

import asyncio
import sys

import with_pgwerk

if __name__ == "__main__":
    asyncio.run(with_pgwerk.main(sys.argv[1]))
