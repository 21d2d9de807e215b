"""Bare SQL as the ceiling: pgbench sends Fencepost's own statements, with as many clients as a worker has processes.

Each client carries the key of its last claim, as a worker does, and nothing else happens between its statements.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from fencepost.jobs.sql import statement

KINDS = "array['noop', 'row']"
PARAMETERS = {
    # of the claim
    "queues": "array['default']",
    "priorities": "array[0]",
    "after_run_at": "array[:run_at]",
    "after_id": "array[:id]",
    "kinds": KINDS,
    "max_attempts": "array[5, 5]",
    "lease": "interval '60 s'",
    "due_by": "null",
    # of the run, and its finish
    "job_id": ":id",
    "fence": ":fence",
    "outcome": "'done'",
    "wait": "interval '0'",
    "final": "false",
    "result": "null",
    "error": "null",
    "summary": "null",
    "stack": "null",
    "max_rss": "30000000",
    # of its transaction
    "tenant_setting": "'app.tenant'",
    "tenant": ":tenant",
    "role": "''",
    "time_left": "'300000'",
}
CLAIM_NAME = "'w' || :client_id::text || '.1'"
BEFORE_THE_FIRST = {"run_at": "2000-01-01", "id": "0", "fence": "0", "name": "none"}


def sql(verb: str, **others: str) -> str:
    """Return one of the package's statements, with what pgbench is to put in."""
    parameters = {**PARAMETERS, "name": ":name", **others}
    text = re.sub(r"%\((\w+)\)s", lambda found: parameters[found[1]], statement(verb, "fencepost").as_string())
    return text.replace("%%", "%").strip()


def claim() -> str:
    """Claim, and keep all of the answer."""
    return sql("claim", name=CLAIM_NAME) + "\n\\gset\n"


def work(script: str) -> None:
    """Become pgbench, which sends `script` again and again; by the command line: the program, and how many clients."""
    program, clients = sys.argv[1:3]
    Path("script.sql").write_text(script, encoding="utf-8")
    known = [word for name, value in BEFORE_THE_FIRST.items() for word in ("-D", f"{name}={value}")]
    fixed = ["-n", "-M", "prepared", "-T", "600", "-f", "script.sql", "-c", clients, "-j", str(min(2, int(clients)))]
    os.execv(program, [program, *fixed, *known, os.environ["DATABASE_URL"]])
