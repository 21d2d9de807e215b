"""The registry refuses what could not run."""

from __future__ import annotations

import functools
import importlib.util
import json
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import tenacity

from fencepost import JobError, UnknownHandler, handler
from fencepost.handlers import handler_of, kind_of, registered

TOP = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _empty_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.handlers._handlers", {})


def work(job: Any) -> None: ...


def other_work(job: Any) -> None: ...


async def async_work(job: Any) -> None: ...


def test_a_decorated_function_stays_as_it_was() -> None:
    """And can be called like any other."""
    assert handler("a")(work) is work
    assert handler("b")(async_work) is async_work
    assert set(registered()) == {"a", "b"}
    assert (kind_of(work), handler_of("b").function) == ("a", async_work)


def test_what_was_said_of_a_handler_is_kept() -> None:
    """As it was given."""
    wait = tenacity.wait_fixed(3)
    handler("a", max_attempts=3, max_runtime=1.5, wait=wait, transaction=True, tenantless=True)(work)
    it = handler_of("a")
    assert (it.kind, it.max_attempts, it.max_runtime, it.wait) == ("a", 3, timedelta(seconds=1.5), wait)
    assert (it.transaction, it.tenantless) == (True, True)
    handler("b")(other_work)
    it = handler_of("b")
    assert (it.max_attempts, it.max_runtime, it.wait, it.transaction, it.tenantless) == (None, None, None, False, False)


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ({"kind": ""}, ValueError, "kind"),
        ({"kind": "é" * 129}, ValueError, "256 bytes"),
        ({"max_attempts": 0}, ValueError, "max_attempts must be at least 1, not 0"),
        ({"max_attempts": -1}, ValueError, "max_attempts"),
        ({"max_attempts": 2**31}, ValueError, "max_attempts"),
        ({"max_runtime": 0}, ValueError, "max_runtime must be more than 0"),
        ({"max_runtime": -1}, ValueError, "negative"),
        ({"max_runtime": float("nan")}, ValueError, "finite"),
        ({"max_runtime": float("inf")}, ValueError, "finite"),
        ({"wait": 60}, TypeError, "wait must be one of tenacity's wait objects"),
    ],
    ids=str,
)
def test_what_could_not_run_is_refused_where_it_is_written(
    arguments: dict[str, Any], error: type[Exception], told: str
) -> None:
    """At import, with the name of what is wrong; nothing is registered."""
    with pytest.raises(error, match=told):
        handler(**{"kind": "a", **arguments})(work)
    assert registered() == {}


def test_generators_are_refused() -> None:
    """A call of one runs nothing of it, and would look like a success."""

    def generator(job: Any) -> Iterator[int]:
        yield 1

    async def async_generator(job: Any) -> AsyncIterator[int]:
        yield 1

    for function in (generator, async_generator):
        with pytest.raises(TypeError, match="a generator can't be a handler"):
            handler("a")(function)


def test_two_handlers_of_one_kind_are_refused_with_both_names() -> None:
    """Which one would run must not hang on the order of imports."""
    handler("a")(work)
    with pytest.raises(JobError, match=r"'a' has two handlers: .*\.work and .*\.other_work"):
        handler("a")(other_work)
    assert handler_of("a").function is work


def test_a_module_may_be_imported_twice() -> None:
    """The same function again, of another copy of its module's code."""
    handler("a")(work)

    def again(job: Any) -> None: ...

    again.__module__, again.__qualname__ = work.__module__, work.__qualname__
    handler("a")(again)
    assert handler_of("a").function is again


REGISTERED_TWICE = r"'count' is registered twice: .*jobs\.py is imported as {} and as {}, import it by one name only"


@pytest.mark.parametrize("names", [("shop.jobs", "jobs"), ("__main__", "jobs")])
def test_a_file_that_is_imported_by_two_names_is_told_as_that(tmp_path: Path, names: tuple[str, str]) -> None:
    """It is one function, and "two handlers" would send people looking for another. The second name may be a link's."""
    file = tmp_path / "jobs.py"
    file.write_text("from fencepost import handler\n\n@handler('count')\ndef count(job): ...\n", encoding="utf-8")
    link = tmp_path / "link.py"
    link.symlink_to(file)
    modules = [importlib.util.spec_from_file_location(*named) for named in zip(names, (file, link), strict=True)]
    modules[0].loader.exec_module(importlib.util.module_from_spec(modules[0]))
    with pytest.raises(JobError, match=REGISTERED_TWICE.format(*names)):
        modules[1].loader.exec_module(importlib.util.module_from_spec(modules[1]))


def test_two_functions_under_one_decorator_are_two_handlers() -> None:
    """The code of both that Python sees first is the decorator's."""

    def decorated(function: Any) -> Any:
        @functools.wraps(function)
        def call(job: Any) -> Any:
            return function(job)

        return call

    handler("a")(decorated(work))
    with pytest.raises(JobError, match=r"'a' has two handlers: .*\.work and .*\.other_work"):
        handler("a")(decorated(other_work))


MODULES = {
    "shop/__init__.py": "from shop.jobs import count as counts",
    "shop/jobs.py": """
        import fencepost

        @fencepost.handler("by its dotted name")
        def count(job): ...
    """,
    "flat.py": """
        from fencepost.handlers import handler

        @handler("by FENCEPOST_HANDLERS")
        def count(job): ...
    """,
    "exports.py": "from reexported import count",
    "reexported/__init__.py": "from reexported.jobs import count",
    "reexported/jobs.py": """
        from fencepost import handler

        @handler("through a re-export")
        async def count(job): ...
    """,
    "main.py": """
        import json, sys
        from fencepost import handler
        from fencepost.handlers import kind_of, registered

        @handler("from __main__")
        def count(job): ...

        import shop.jobs
        from fencepost.worker.boot import import_handlers
        error = import_handlers(("flat", "exports", "shop"))
        assert error is None, error
        # As in a checkout, where our folders are modules of their own.
        sys.path.append(sys.argv[1])
        from worker import boot
        assert boot.__name__ == "worker.boot"
        assert (kind_of(count), kind_of(shop.counts)) == ("from __main__", "by its dotted name")
        print(json.dumps([sorted(registered()), sorted(boot.registered())]))
    """,
}


def test_there_is_one_registry_however_handlers_and_fencepost_are_imported(tmp_path: Path) -> None:
    """By dotted name, by FENCEPOST_HANDLERS, through a re-export, from a script; seen by each copy of our modules."""
    for name, text in MODULES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text), encoding="utf-8")
    done = subprocess.run([sys.executable, "main.py", TOP], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kinds = ["by FENCEPOST_HANDLERS", "by its dotted name", "from __main__", "through a re-export"]
    assert json.loads(done.stdout) == [kinds, kinds]


def test_an_unknown_kind_is_told_with_the_cure() -> None:
    """Is its module listed?"""
    with pytest.raises(UnknownHandler, match="FENCEPOST_HANDLERS"):
        handler_of("a")
    with pytest.raises(UnknownHandler, match="decorate it with @handler"):
        kind_of(work)


def test_a_decorator_without_a_kind_is_told() -> None:
    """`@handler` alone is written quickly."""
    with pytest.raises((TypeError, ValueError), match="kind"):
        handler(work)  # type: ignore[arg-type]


def test_the_registry_that_is_given_out_is_a_copy() -> None:
    """Nobody registers by the back door."""
    registered()["a"] = handler_of  # type: ignore[assignment]
    assert registered() == {}
