"""A worker's start: from the fork to being ready, which needs no database.

It leaves by `os._exit`, always: unwinding would run what the supervisor has on its stack.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from typing import NoReturn

import structlog
from setproctitle import setproctitle

from fencepost import logs
from fencepost.board import Phase, Record
from fencepost.forkable import cannot_be_forked, descriptors
from fencepost.handlers import registered
from fencepost.memory import anonymous, too_large
from fencepost.settings import use_working_directory
from fencepost.start import WorkerStart, application_name
from fencepost.worker.errors import clean
from fencepost.worker.loop import Worker
from fencepost.worker.stacks import Stacks

NOTE_LIMIT = 1024 * 1024
ERROR_LIMIT = 16 * 1024
CANNOT_START = 70
IMPORTERS = (__file__, importlib.__file__, "<frozen importlib")


def run_worker(start: WorkerStart) -> NoReturn:
    """Import the handlers, say that we are ready, and work. Never returns, and never raises."""
    code = CANNOT_START
    try:
        setproctitle(f"fencepost: worker {start.slot} starting")
        Stacks(start.stacks).install()
        logs.sink.shared_description()
        structlog.contextvars.bind_contextvars(worker=start.name, slot=start.slot)
        _mark(start)
        _write_lines_at_once()
        note = first_note(start)
        _write_note(start.note, note)
        if "kinds" in note:
            start.board.write(Record(Phase.idle))
            Worker(start).work()
            code = 0
    except BaseException:  # noqa: BLE001  # an error of ours: said, and the supervisor starts another worker
        structlog.get_logger().error("the worker failed", error=clean(traceback.format_exc(), ERROR_LIMIT))
    finally:
        _flush()
        os._exit(code)


def try_handlers(start: WorkerStart) -> NoReturn:
    """Import the handlers, write what came of it, and leave: a trial, in a process of its own."""
    setproctitle("fencepost: trial of the handlers")
    _mark(start)
    _write_note(start.note, first_note(start))
    _flush()
    os._exit(0)


def _mark(start: WorkerStart) -> None:
    """Have all that comes from this process bear its name: by that the supervisor ends it after our death.

    A program by its environment, and each connection, a job's own among them, by what it calls itself.
    """
    os.environ["PGAPPNAME"] = application_name(start.name)
    os.environ["FENCEPOST_WORKER"] = start.name


def first_note(start: WorkerStart) -> dict[str, object]:
    """Import the handlers, and return what the supervisor is to know: the kinds, or what keeps this from being a worker."""
    before = descriptors()
    if (error := import_handlers(start.settings.handlers)) is not None:
        return {"error": error}
    if (refused := too_large(anonymous() - start.memory, start.settings.max_rss)) is not None:
        return {"refused": refused}
    if start.settings.preload and (refused := cannot_be_forked(descriptors() - before)) is not None:
        return {"refused": refused}
    return {"kinds": sorted(registered())}


def import_handlers(modules: tuple[str, ...]) -> str | None:
    """Import the modules that register handlers. Return what went wrong, as text for whoever has to mend it."""
    use_working_directory()
    for module in modules:
        try:
            importlib.import_module(module)
        except BaseException as error:  # noqa: BLE001  # a module may also call sys.exit
            # The end says what is wrong.
            return clean(f"{module} can't be imported:\n{_traceback(error)[-8000:]}", ERROR_LIMIT)
    if not registered():
        return f"no handler is registered in {', '.join(modules) or 'any module'}: set FENCEPOST_HANDLERS"
    return None


def _traceback(error: BaseException) -> str:
    """Return the traceback without the frames of those who import: they say nothing."""
    told = traceback.TracebackException.from_exception(error)
    theirs = [frame for frame in told.stack if not frame.filename.startswith(IMPORTERS)]
    told.stack = traceback.StackSummary.from_list(theirs)
    return "".join(told.format())


def _write_lines_at_once() -> None:
    """Have stdout keep no line of a job's back until the worker leaves, as it would do through a pipe."""
    try:
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        pass  # there is none, or modules that were preloaded have replaced or closed it: that is theirs to do


def _write_note(fd: int, note: dict[str, object]) -> None:
    os.pwrite(fd, json.dumps(note).encode()[:NOTE_LIMIT], 0)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: BLE001, S110  # closed by a job, or nobody reads it any more: nothing to be done
            pass
