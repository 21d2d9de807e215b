"""Fencepost: background jobs in PostgreSQL, each in a child process, under a parent that no job can take down.

The names below are loaded when they are first used. The command line is a part of this package, and has to be able to take
Ctrl-C before anything that is slow to import; pytest imports it at its every start, for fixtures that it may not need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.handlers import handler
    from fencepost.job import (
        Cancel,
        GiveUp,
        InvalidJob,
        Job,
        JobError,
        Retry,
        RetryRefused,
        Snooze,
        Status,
        Stopped,
        TransactionEnded,
        UnknownHandler,
        UnknownJob,
    )
    from fencepost.jobs.by_hand import JobRow, acancel, aget, aretry, cancel, get, retry
    from fencepost.jobs.enqueue import NewJob, aenqueue, enqueue
    from fencepost.jobs.enqueue_many import aenqueue_many, enqueue_many

__all__ = [
    "Cancel",
    "GiveUp",
    "InvalidJob",
    "Job",
    "JobError",
    "JobRow",
    "NewJob",
    "Retry",
    "RetryRefused",
    "Snooze",
    "Status",
    "Stopped",
    "TransactionEnded",
    "UnknownHandler",
    "UnknownJob",
    "acancel",
    "aenqueue",
    "aenqueue_many",
    "aget",
    "aretry",
    "cancel",
    "enqueue",
    "enqueue_many",
    "get",
    "handler",
    "retry",
]

_HOMES = (
    "fencepost.job", "fencepost.handlers", "fencepost.jobs.enqueue", "fencepost.jobs.enqueue_many", "fencepost.jobs.by_hand",
)  # fmt: skip

# Not for type checkers, to which every name would be there then.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in __all__:
            for home in map(import_module, _HOMES):
                if hasattr(home, name):
                    return globals().setdefault(name, getattr(home, name))
        raise AttributeError(f"module 'fencepost' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
