"""Starts threads as it is imported, as some libraries do."""

from __future__ import annotations

import threading
import time

from handlers_for_tests import marked

from fencepost import Job

for name in ("first-of-the-library", "second-of-the-library"):
    threading.Thread(target=time.sleep, args=(3600,), name=name, daemon=True).start()


@marked("counts_threads")
def counts_threads(job: Job) -> list[str]:
    """Return the names of the threads here."""
    return sorted(thread.name for thread in threading.enumerate())
