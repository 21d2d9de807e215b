"""The queue as a test sees it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fencepost import enqueue
from support.databases import Database
from support.waiting import wait_until


class Jobs:
    """Enqueue jobs, look at them, wait for them. Rows are named tuples."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def enqueue(self, kind: str, payload: dict[str, Any] | None = None, **options: Any) -> int:
        """Enqueue a job, committed, and return its id. The tenant is 1 unless told otherwise."""
        return enqueue(self._database.owner, kind, payload, **{"tenant": 1, **options})

    def get(self, job: int) -> Any:
        """Return the job's row."""
        rows = self._database.execute("select * from fencepost.jobs where id = %s", [job])
        assert rows, f"there is no job {job}"
        return rows[0]

    __getitem__ = get

    def seconds_until(self, moment: Any) -> float:
        """Return how many seconds the moment lies ahead, by the database's clock."""
        return float(self._database.value("select extract(epoch from %s - clock_timestamp())::float8", [moment]))

    def runs(self, job: int) -> list[Any]:
        """Return the rows of the job's runs that have ended, the oldest first."""
        return self._database.execute("select * from fencepost.job_runs where job_id = %s order by fence", [job])

    def outcomes(self, job: int) -> list[str]:
        """Return how the job's runs have ended, the oldest first."""
        return [run.outcome for run in self.runs(job)]

    def marks(self, job: int | None = None, note: str = "start") -> list[Any]:
        """Return the marks that runs of a job (or of all) left outside their transactions, the oldest first."""
        query = "select * from test.marks where (%s::bigint is null or job = %s) and note = %s order by id"
        return self._database.execute(query, [job, job, note])

    def rows(self, job: int | None = None) -> list[Any]:
        """Return the business rows that runs of a job (or of all) committed, the oldest first."""
        query = "select * from test.rows where (%s::bigint is null or job = %s) order by id"
        return self._database.execute(query, [job, job])

    def wait_for(self, job: int, status: str | Iterable[str] = "done", within: float = 10.0) -> Any:
        """Wait until the job has the status (or one of several) and return its row."""
        wanted = {status} if isinstance(status, str) else set(status)
        seen: list[Any] = []

        def reached() -> bool:
            seen[:] = [self.get(job)]
            return seen[0].status in wanted

        try:
            wait_until(reached, within=within)
        except AssertionError:
            names = " or ".join(sorted(wanted))
            message = f"job {job} was not {names} within {within:g} s: {seen[0]}; runs: {self.outcomes(job)}"
            raise AssertionError(message) from None
        return seen[0]

    def wait_for_mark(self, job: int, attempt: int = 1, note: str = "start", within: float = 10.0) -> Any:
        """Wait until the run of that attempt has left its mark, and return it."""
        return wait_until(
            lambda: next((mark for mark in self.marks(job, note) if mark.attempt == attempt), None),
            within=within,
            what=f"the mark {note!r} of job {job}, attempt {attempt}",
        )
