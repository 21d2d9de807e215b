"""The package as its users have it: a wheel, installed beside code of their own, with no checkout near."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.databases import Database
from support.jobs import Jobs
from support.processes import Supervisor
from support.programs import answer

TOP = Path(__file__).parents[2]
HERE = Path(__file__).parent

OF_THE_CHECKOUT = ("supervisor", "worker", "migrations")
"""Folders that are modules in the checkout, and must be none where Fencepost is installed."""


@pytest.fixture
def start(python: Path, database: Database, tmp_path: Path) -> Iterator[Callable[..., Supervisor]]:
    """Start the installed `fencepost run` in the test's folder, where modules are found in no other way."""
    started: list[Supervisor] = []

    def start(*command: str, handlers: str) -> Supervisor:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "executable", str(python))
            one = Supervisor(database.worker_url, tmp_path, handlers, command, environment={"PYTHONPATH": ""})
        started.append(one)
        return one

    yield start
    for one in started:
        one.stop()


# ---- what it brings


def test_the_wheel_brings_one_name(python: Path, tmp_path: Path) -> None:
    """The checkout's other folders bear names that users and other packages have: worker, PyPI's supervisor."""
    code = f"""if True:
        import importlib.util, json, fencepost, fencepost.supervisor.main, fencepost.worker.loop
        from importlib.metadata import files
        found = [spec.origin for name in {OF_THE_CHECKOUT} if (spec := importlib.util.find_spec(name)) is not None]
        print(json.dumps([fencepost.__file__, found, sorted({{file.parts[0] for file in files("fencepost")}})]))
    """
    package, found, brought = json.loads(answer(python, "-c", code, cwd=tmp_path))
    assert Path(package).is_relative_to(python.parents[1])
    assert [name.partition("-")[0] for name in brought] == ["..", "fencepost", "fencepost"]
    # PyPI's supervisor may be there; without a file it would be a bare folder.
    assert not [file for file in found if file is None or Path(file).is_relative_to(TOP)]


def test_the_installed_command_answers_in_an_empty_folder(python: Path, tmp_path: Path) -> None:
    """With its version, and its settings."""
    command = python.with_name("fencepost")
    version = answer(python, "-c", "from importlib.metadata import version; print(version('fencepost'))", cwd=tmp_path)
    assert answer(command, "--version", cwd=tmp_path) == f"fencepost {version}"
    assert "FENCEPOST_LEASE" in answer(command, "run", "--help", cwd=tmp_path)


# ---- beside what users have

USERS_OWN = {
    "worker.py": """
import fencepost, migrations, supervisor
from fencepost import handler
from shop import count

@handler("tells")
def tells(job):
    return {"modules": [__name__, migrations.OWNER, supervisor.OWNER], "package": fencepost.__file__}
""",
    "supervisor.py": "OWNER = 'the user'",
    "migrations/__init__.py": "OWNER = 'the user, too'",
    "shop/__init__.py": "from shop.jobs import count",
    "shop/jobs.py": """
import fencepost.handlers

@fencepost.handlers.handler("count")
async def count(job, *, month):
    async with job.transaction() as conn:
        cursor = await conn.execute("select current_setting('app.tenant')")
        return {month: (await cursor.fetchone())[0]}
""",
}


@pytest.mark.parametrize("by", ["script", "module"])
def test_a_users_own_worker_supervisor_and_migrations_are_the_users(
    start: Callable[..., Supervisor], python: Path, jobs: Jobs, tmp_path: Path, by: str
) -> None:
    """They stand in the working directory and bear the names of our folders: neither breaks the other."""
    for name, text in USERS_OWN.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    start(*{"script": [str(python.with_name("fencepost"))], "module": ["-m", "fencepost"]}[by], "run", handlers="worker")
    told = jobs.wait_for(jobs.enqueue("tells")).result
    assert told["modules"] == ["worker", "the user, too", "the user"]
    assert Path(told["package"]).is_relative_to(python.parents[1])
    assert jobs.wait_for(jobs.enqueue("count", {"month": "2026-10"}, tenant=7)).result == {"2026-10": "7"}


# ---- what a type checker sees of it


def test_a_module_of_handlers_passes_a_strict_type_checker(python: Path, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """The errors in it that are meant are marked, and would be told where they were none."""
    cache = pytestconfig.cache.mkdir("mypy")
    shutil.copy(HERE / "typed_handlers.py", tmp_path)
    # Without a configuration, as users would; what it knows of our dependencies is kept, since that takes seconds.
    options = ["--strict", "--config-file=", "--cache-dir", cache, "--python-executable", python]
    assert answer(sys.executable, "-m", "mypy", *options, "typed_handlers.py", cwd=tmp_path).startswith("Success")
