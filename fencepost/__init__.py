"""Fencepost: background jobs in PostgreSQL, each in a child process, under a parent that no job can take down."""

from fencepost.handlers import handler
from fencepost.job import (
    Cancel,
    GiveUp,
    InvalidJob,
    Job,
    JobError,
    Retry,
    Snooze,
    Stopped,
    TransactionEnded,
    UnknownHandler,
)
from fencepost.jobs.enqueue import aenqueue, enqueue

__all__ = [
    "Cancel",
    "GiveUp",
    "InvalidJob",
    "Job",
    "JobError",
    "Retry",
    "Snooze",
    "Stopped",
    "TransactionEnded",
    "UnknownHandler",
    "aenqueue",
    "enqueue",
    "handler",
]
