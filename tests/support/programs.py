"""Programs that are run to their end, as in a shell of their own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def answer(*command: str | Path, cwd: Path) -> str:
    """Run what has to work, and return what it says. What is set for our own Python does not reach it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout
