"""The queue itself under the tenants' policy."""

from __future__ import annotations

import subprocess

from article.lab import Facts, Lab
from article.page import Section, one_line
from fencepost import enqueue

TITLE = "The queue under the tenants' policy"

JOBS = 100
FILL = "insert into tenant_jobs (tenant_id) select generate_series(1, %s)"
CLAIM = "select id from tenant_jobs where status = 'queued' order by id for update skip locked"
POLICY = """
alter table fencepost.jobs enable row level security;
alter table fencepost.jobs force row level security;
create policy own on fencepost.jobs using (tenant_id = nullif(current_setting('app.tenant', true), ''))"""


def measure(lab: Lab) -> Facts:
    """Look for jobs without a tenant; then have `check` and `run` look at Fencepost's own table under such a policy."""
    with lab.database() as database:
        database.owner.execute(FILL, [JOBS])
        with database.worker_conn() as conn:
            seen = len(conn.execute(CLAIM).fetchall())
        for tenant in range(1, JOBS + 1):
            enqueue(database.owner, "nothing", tenant=tenant)
        before = lab.fencepost("check", url=database.worker_url)
        database.owner.execute(POLICY)
        with database.worker_conn() as conn:
            visible = len(conn.execute("select from fencepost.jobs").fetchall())
        check = lab.fencepost("check", url=database.worker_url)
        run = lab.fencepost("run", url=database.worker_url) if check.returncode else None
    return {
        "jobs": JOBS,
        "seen": seen,
        "visible": visible,
        "before": before.returncode,
        "exit": check.returncode,
        "said": [_plain(line, database.worker) for line in _lines(check) if "olicy" in line or "row-level" in line],
        "run": run.returncode if run else None,
    }


def _lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line.strip() for line in (done.stdout + done.stderr).splitlines()]


def _plain(line: str, worker: str) -> str:
    """Return what was said, with the login's name as one would have chosen it."""
    return one_line(line.replace(worker, "worker"))


def tell(facts: Facts) -> Section:
    """Tell of it. What `check` does not say is not told for it."""
    said = "; ".join(facts["said"]) or "nothing of it"
    run = f"`fencepost run` leaves with {facts['run']}" if facts["run"] is not None else "`fencepost run` was not tried"
    return Section(
        article="a worker without a tenant sees 0 of 100 jobs, without an error: a queue that looks empty.",
        here=f"it sees {facts['seen']} of {facts['jobs']}.",
        fencepost=f"has its tables outside of the tenants' policies. If someone puts one on them, {facts['visible']} of "
        f"{facts['jobs']} are to be seen, `fencepost check` exits with {facts['exit']} (before: {facts['before']}), and "
        f"{run}.",
        head=["", "jobs seen without a tenant", "what is said"],
        rows=[
            ["the naive queue", f"{facts['seen']} of {facts['jobs']}", "nothing"],
            ["Fencepost's under such a policy", f"{facts['visible']} of {facts['jobs']}", f"`fencepost check`: {said}"],
        ],
    )
