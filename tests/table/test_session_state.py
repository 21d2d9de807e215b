"""What a session reads like before any job had it, and after one that has left nothing."""

from __future__ import annotations

import pytest

from fencepost.jobs.transaction import Context, Held, as_new, begin, clean, roll_back
from support.databases import Database

RUN = Held(1, 1, "w:1")


@pytest.mark.parametrize(("setting", "tenant"), [("app.tenant", "7"), ("", "")], ids=["with tenants", "without"])
def test_a_session_in_which_nothing_was_left_reads_as_new(database: Database, setting: str, tenant: str) -> None:
    """Else every setting is looked at behind each job, which takes as long as a short one."""
    with database.worker_conn() as conn:
        new = as_new(conn, "fencepost", setting)
        for _ in range(2):
            begin(conn, "fencepost", RUN, Context(setting, tenant, "", 60_000))
            roll_back(conn, "fencepost")
            assert as_new(conn, "fencepost", setting) == new
            assert clean(conn, "fencepost", setting, new, thoroughly=False) == ""
            assert as_new(conn, "fencepost", setting) == new
