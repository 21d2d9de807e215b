"""Draws random numbers as it is imported, with a generator of its own too, which it has reseeded after a fork."""

from __future__ import annotations

import os
import random
import secrets
import tempfile
import uuid

from handlers_for_tests import marked

from fencepost import Job

own = random.Random(1)
drawn = [random.random(), own.random(), uuid.uuid4(), secrets.token_hex(), tempfile.mktemp()]
os.register_at_fork(after_in_child=own.seed)


@marked("draws")
def draws(job: Job) -> dict[str, str]:
    """Return what this process draws first."""
    return {
        "random": str(random.random()),
        "own": str(own.random()),
        "uuid": str(uuid.uuid4()),
        "secrets": secrets.token_hex(),
        "tempfile": tempfile.mktemp(),
    }
