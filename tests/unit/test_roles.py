"""What is granted elsewhere is what `fencepost migrate --roles` prints."""

from __future__ import annotations

from pathlib import Path

import fencepost
from fencepost.jobs.roles import DEFAULT, script
from support.databases import grants_of_worker

PACKAGE = Path(fencepost.__file__).parent


def test_the_demo_grants_a_worker_what_is_recommended() -> None:
    """It shows what you would do."""
    granted = [
        line.strip(";") for line in (PACKAGE / "demo" / "grants.sql").read_text().splitlines() if line.startswith("grant")
    ]
    recommended = [line.strip(";").replace('"worker"', "worker") for line in grants_of_worker("fencepost", "worker")]
    assert len(recommended) == 6
    assert granted == recommended


def test_the_file_is_what_is_printed_by_default() -> None:
    """Somebody who reads it in the repository reads the same."""
    assert script("fencepost", DEFAULT, "app.tenant") == (PACKAGE / "jobs" / "roles.sql").read_text().rstrip("\n")
