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
    # of a claim
    "claim": "'w' || :client_id::text || '.1'",
    "queues": "array['default']",
    "priorities": "array[0]",
    "after_run_at": "array[:run_at]",
    "after_id": "array[:id]",
    "kinds": KINDS,
    "max_attempts": "array[5, 5]",
    "lease": "interval '60 s'",
    "due_by": "null",
    # of a run, and its finish
    "job_id": ":id",
    "fence": ":fence",
    "name": ":name",
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
NO_RUN = dict.fromkeys(("job_id", "fence", "name", "outcome"), "null")
BEFORE_THE_FIRST = {"run_at": "2000-01-01", "id": "0", "fence": "0", "name": "none"}


def sql(verb: str, **others: str) -> str:
    """Return one of the package's statements, with what pgbench is to put in."""
    parameters = {**PARAMETERS, **others}
    text = re.sub(r"%\((\w+)\)s", lambda found: parameters[found[1]], statement(verb, "fencepost").decode())
    return text.replace("%%", "%").strip()


def claim() -> str:
    """Claim, and keep the answer."""
    return sql("claim", **NO_RUN) + "\n\\gset\n"


def finish_and_claim() -> str:
    """Finish what was claimed last and claim the next, and keep the answer."""
    return sql("claim") + "\n\\gset\n"


def work(script: str) -> None:
    """Become pgbench, which sends `script` again and again; by the command line: the program, and how many clients."""
    program, clients = sys.argv[1:3]
    Path("script.sql").write_text(script, encoding="utf-8")
    # What a worker sets for its session.
    session = re.findall(r"set_config\('(\w+)', '(\w+)'", statement("plan_once", "fencepost").decode())
    environment = {**os.environ, "PGOPTIONS": " ".join(f"-c {name}={value}" for name, value in session)}
    fixed = ["-n", "-M", "prepared", "-T", "600", "-f", "script.sql", "-c", clients, "-j", str(min(2, int(clients)))]
    known = [word for name, value in BEFORE_THE_FIRST.items() for word in ("-D", f"{name}={value}")]
    os.execve(program, [program, *fixed, *known, os.environ["DATABASE_URL"]], environment)
