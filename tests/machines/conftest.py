"""What makes a machine of its own: namespaces, control groups, a second server. It takes root, and Debian's programs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.networks import Machine

PROGRAMS = {"unshare": "util-linux", "ip": "iproute2", "nft": "nftables", "faketime": "faketime"}
"""What these tests start, and the package of Debian that brings it; `.ci/run` installs them."""


@pytest.fixture
def machine() -> Iterator[Machine]:
    """A machine of its own on the network."""
    made = Machine()
    yield made
    made.remove()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip this folder's tests, with the reason, where they can't run."""
    if reason := _what_is_missing():
        here = Path(__file__).parent
        for item in items:
            if item.path.is_relative_to(here):
                item.add_marker(pytest.mark.skip(reason=reason))


def _what_is_missing() -> str | None:
    if os.geteuid() != 0:
        return "namespaces and control groups need root"
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    lacking = sorted({package for program, package in PROGRAMS.items() if shutil.which(program, path=path) is None})
    return f"not installed: apt-get install {' '.join(lacking)}" if lacking else None
