"""An environment that has the built wheel, for all tests of the package."""

from __future__ import annotations

import os
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from support.programs import answer

TOP = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the wheel: TEST_INSTALLED_PYTHON, or one that borrows our dependencies."""
    if given := os.environ.get("TEST_INSTALLED_PYTHON"):
        return Path(given)
    folder = tmp_path_factory.mktemp("installed")
    answer(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=TOP)
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    # A .pth file names a folder, whose own .pth files are not read: what is installed there is found, our checkout is not.
    site_packages = Path(answer(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    (site_packages / "borrowed.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    (wheel,) = folder.glob("*.whl")
    answer(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel, cwd=folder)
    return python
