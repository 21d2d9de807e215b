"""What must not be where, looked up in the package's own files."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import fencepost

PACKAGE = Path(fencepost.__file__).parent

STATEMENT = re.compile(
    r"""
    ^\s*(
        select\s+\S.*\bfrom\b | select\s+[\w.]+\(
        | insert\s+into\s | update\s+\S+\s+(\w+\s+)?set\s | delete\s+from\s | merge\s+into\s
        | with\s+(recursive\s+)?\w+\s*(\([^)]*\)\s*)?as\s+((not\s+)?materialized\s*)?\(
        | (create|alter|drop)\s+(or\s+replace\s+)?(unique\s+)?
            (table|index|schema|role|user|database|function|extension|policy|sequence|trigger|type|view)\s
        | grant\s+\S.*\b(on|to)\s | revoke\s+\S.*\b(on|from)\s
        | set\s+(local|session)\s | reset\s+(all|role|session) | discard\s+\w+\s*;?$
        | (un)?listen\s+\S+\s*;?$ | notify\s+\w+\s*(;|,|$)
        | (begin|commit|rollback|start\s+transaction)\s*;
        | truncate\s+(table\s)? | copy\s.*\b(from|to)\s+std | lock\s+table\s | do\s+\$
    )
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)

SENDERS = {"execute", "executemany", "copy", "stream", "SQL"}
"""What psycopg takes a statement with: text written in such a call is SQL, whatever it says."""

ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
FORKS = {"fork", "forkpty"}


def files(suffix: str) -> list[str]:
    """Return the package's files by their path in it, through the links."""
    return sorted(
        str((Path(folder) / name).relative_to(PACKAGE))
        for folder, _, names in os.walk(PACKAGE, followlinks=True)
        for name in names
        if name.endswith(suffix)
    )


@cache
def parsed(name: str) -> ast.Module:
    return ast.parse((PACKAGE / name).read_text(encoding="utf-8"), filename=name)


def found(look: Callable[[ast.Module], Iterator[tuple[ast.AST, str]]], allowed: set[str] = frozenset()) -> list[str]:
    return [
        f"{name}:{node.lineno}: {what}" for name in files(".py") if name not in allowed for node, what in look(parsed(name))
    ]


def uses_of_os(tree: ast.Module, names: set[str]) -> Iterator[tuple[ast.AST, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr=attribute) if attribute in names:
                yield node, f"os.{attribute}"
            case ast.ImportFrom(module="os", names=imported):
                yield from ((node, f"from os import {alias.name}") for alias in imported if alias.name in names)


def sql_in(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    for_people = set(map(id, texts_for_people(tree)))
    for node in ast.walk(tree):
        if id(node) in for_people:
            continue
        match node:
            case ast.Call(func=ast.Attribute(attr=sender) | ast.Name(id=sender), args=[first, *_]) if sender in SENDERS:
                if isinstance(first, ast.JoinedStr) or (isinstance(first, ast.Constant) and first.value):
                    yield node, ast.unparse(first)
            case ast.Constant(value=str(text)) if STATEMENT.match(text):
                yield node, text
            case ast.JoinedStr() if STATEMENT.match(text := ast.unparse(node)[2:-1]):
                yield node, text


def texts_for_people(tree: ast.Module) -> Iterator[ast.AST]:
    """Find the docstrings, and the cures that are told with a refusal, which may be SQL to paste."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant() as docstring):
                yield docstring
            case ast.Call(func=ast.Name(id="Refusal")):
                yield from ast.walk(node)


def modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]


def run_outside(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)


def test_the_package_is_seen_whole():
    assert {"job.py", "jobs/claim.py", "supervisor/fork.py", "worker/boot.py"} <= set(files(".py"))
    assert "migrations/0001_the_queue.sql" in files(".sql")


def test_no_sql_stands_in_python():
    assert found(sql_in) == []


@pytest.mark.parametrize(
    "code",
    [
        'conn.execute("listen x")',
        'conn.execute(f"set role {role}")',
        'query = "select a, b\\n from jobs"',
        'query = "  UPDATE jobs SET status = 1"',
        'query = f"insert into {table} values (1)"',
        'query = "with a as (select 1) table a"',
        'query = "begin; select 1"',
    ],
)
def test_sql_would_be_found(code):
    assert list(sql_in(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        '"""select one from many"""',
        'raise ValueError("update the settings and set it again")',
        'lent.refuse("commit")',
        'log.info("copy that")',
        'conn.execute(statement("claim", schema))',
        'Refusal("right missing", f"grant usage on schema {schema} to {login}")',
    ],
)
def test_sentences_are_not_taken_for_sql(code):
    assert not list(sql_in(ast.parse(code)))


def test_only_settings_read_the_environment():
    # The demo hands on what programs need of the caller's environment, and reads no setting. The worker: see below; and it
    # puts the whole back after a job, whatever is in it.
    allowed = {"settings.py", "demo/environment.py", "worker/boot.py", "worker/leftovers.py"}
    assert found(lambda tree: uses_of_os(tree, ENVIRONMENT), allowed) == []


def test_a_worker_only_writes_two_variables_into_its_environment():
    tree = parsed("worker/boot.py")
    written = [
        (node, node.slice.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.slice, ast.Constant)
        if ast.unparse(node.value) == "os.environ"
    ]
    assert {name for _, name in written} == {"PGAPPNAME", "FENCEPOST_WORKER"}
    assert len(list(uses_of_os(tree, ENVIRONMENT))) == len(written)


def test_only_one_module_forks():
    assert found(lambda tree: uses_of_os(tree, FORKS), {"supervisor/fork.py", "supervisor/init.py"}) == []


def test_nothing_uses_multiprocessing():
    imports = [
        f"{name}:{node.lineno}"
        for name in files(".py")
        for node in ast.walk(parsed(name))
        if isinstance(node, ast.Import | ast.ImportFrom)
        if any(module.split(".")[0] == "multiprocessing" for module in modules(node))
    ]
    assert imports == []


@pytest.mark.parametrize("name", [name for name in files(".sql") if name.startswith("jobs/")])
def test_a_statement_opens_with_its_name_and_reason(name):
    first = (PACKAGE / name).read_text(encoding="utf-8").partition("\n")[0]
    assert re.match(rf"-- {Path(name).stem}: \S", first), f"{name} opens with {first!r}"


@pytest.mark.parametrize("name", ["supervisor", "worker", "migrations"])
def test_outside_the_checkout_no_module_has_a_name_that_may_be_a_users_own(name, tmp_path):
    done = run_outside(tmp_path, f"import {name}")
    assert f"No module named '{name}'" in done.stderr


def test_a_supervisor_loads_neither_the_workers_code_nor_a_users(tmp_path):
    every = [name.removesuffix(".py").replace("/", ".") for name in files(".py") if name.startswith("supervisor/")]
    imports = "; ".join(f"import fencepost.{name.removesuffix('.__init__')}" for name in every)
    done = run_outside(tmp_path, f"{imports}; import sys; print([m for m in sys.modules if 'worker' in m])")
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
