"""The story that the demo tells.

    a supervisor takes the late writer, and is frozen with it
    another supervisor takes all the rest, and after its lease the late writer too
    the two that were frozen wake up, too late
    all jobs have come to rest: both supervisors are drained

The kernel would end the first one while it is frozen, and nothing would come late: here it may not, so that the fence is seen.

Invariant: each scene begins on a condition and never after a time, so that every run of the demo tells the same.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path

from fencepost.demo import database
from fencepost.demo.database import WORKER, Onlooker
from fencepost.demo.facts import NAMES, WRITES_LATE, BadJob, Facts, how_ended
from fencepost.demo.server import Server
from fencepost.demo.show import Screen, View
from fencepost.demo.stop import Stop, Trouble
from fencepost.demo.supervisors import LEASE, WORKERS, Supervisor, Worker

WITHIN = 45.0
"""Seconds within which all jobs must have come to rest."""

BETWEEN_VIEWS = 0.12

DIED = "a worker has died"
VOID = "the lease was lost: this run is void"
"""Events in the supervisors' logs."""


class Story:
    """The demo from the first process to the last. Whatever it starts is ended by `entered`, in reverse order."""

    def __init__(self, folder: Path, environment: Mapping[str, str], stop: Stop, screen: Screen, entered: ExitStack) -> None:
        self._stop = stop
        self._screen = screen
        self._entered = entered
        self._server = Server(folder, environment, stop)
        self._frozen = Supervisor("that-freezes", folder, environment, stop)
        self._steady = Supervisor("that-stays", folder, environment, stop)
        self._late_id = 0
        self._frozen_at = 0.0
        self._awake = False
        self._told: dict[str, int] = {}
        self._counted_told = 0
        for thing in (self._server, self._steady, self._frozen):
            entered.callback(thing.end)

    def run(self) -> Facts:
        """Tell it, and return what there is to judge."""
        self._prepare()
        look = self._entered.enter_context(closing(Onlooker(self._server)))
        self._freeze(look)
        self._start_the_rest()
        until = time.monotonic() + WITHIN
        while not self._all_is_over(look):
            if time.monotonic() > until:
                self._screen.tell(f"not all jobs have come to rest within {WITHIN:g} s")
                break
            self._stop.sleep(BETWEEN_VIEWS)
        return self._drained(look)

    # ---- the beginning

    def _prepare(self) -> None:
        self._screen.tell("PostgreSQL is started in a temporary folder")
        version = self._server.start()
        self._screen.tell(f"PostgreSQL {version} answers")
        database.create(self._server)
        self._screen.tell("100 tenants with 103,707 invoices are loaded, under row-level security")

    def _freeze(self, look: Onlooker) -> None:
        self._late_id = database.enqueue_late(self._server)
        self._frozen.start(self._server.conninfo(WORKER), concurrency=1, queues="late", wakes_late=True)
        worker = self._stop.until(self._worker_of_late, 20, "the start of the late writer")
        self._frozen.freeze(worker)
        self._frozen_at = time.monotonic()
        job = look.bad_jobs()[WRITES_LATE]
        if (job.status, job.attempts) != ("running", 1):
            raise Trouble(f"the late writer was to be frozen as it runs, and is {job.status} at attempt {job.attempts}")
        self._screen.tell(f"supervisor {self._frozen.pid} runs the late writer: both are frozen in the middle")

    def _worker_of_late(self) -> Worker | None:
        self._frozen.look()
        return next((worker for worker in self._frozen.workers() if worker.has(self._late_id)), None)

    def _start_the_rest(self) -> None:
        # It prefers the late writer's queue: that job is to be taken over as soon as its lease allows.
        self._steady.start(self._server.conninfo(WORKER), concurrency=WORKERS, queues="late,default")
        self._screen.tell(f"supervisor {self._steady.pid} starts {WORKERS} workers; its pid must not change any more")
        count = database.enqueue(self._server)
        self._screen.tell(f"{count} jobs are enqueued: one for each tenant, three bad ones among them")

    # ---- the middle

    def _all_is_over(self, look: Onlooker) -> bool:
        self._steady.look()
        self._frozen.look()
        progress = look.progress()
        bad = look.bad_jobs()
        self._tell_news(progress["counted"], bad)
        self._wake_when_taken_over(bad[WRITES_LATE])
        workers = self._steady.workers()
        self._screen.show(
            View(
                counted=progress["counted"],
                pid=self._steady.pid,
                age=self._steady.age,
                died=len(list(self._steady.events(DIED))),
                workers=workers,
                bad=[(NAMES[kind], self._now(bad[kind], workers)) for kind in NAMES if kind in bad],
            )
        )
        return progress["unfinished"] == 0 and self._awake

    def _wake_when_taken_over(self, job: BadJob) -> None:
        """Wake both up once the job is at rest. The worker first, so that its late write is really tried."""
        if self._awake or job.status in ("queued", "running"):
            return
        self._frozen.wake_worker()
        self._awake = True
        try:
            self._stop.until(self._late_write_refused, 3, "the refusal")
        except Trouble:
            self._screen.tell("the frozen worker woke up, and no refusal of its write was seen")
        else:
            self._screen.tell("the frozen worker woke up and wrote its row: its commit was refused")
        self._frozen.wake()

    def _late_write_refused(self) -> bool:
        # With an outcome it would be the finish that was refused, and not yet a write.
        return any(event.get("job") == self._late_id and "outcome" not in event for event in self._frozen.events(VOID))

    def _tell_news(self, counted: int, bad: dict[str, BadJob]) -> None:
        while counted >= self._counted_told + 25:
            self._counted_told += 25
            self._screen.tell(f"{self._counted_told} of 100 tenants counted")
        for kind, job in bad.items():
            told = self._told.get(kind, 0)
            for run in job.runs[told:]:
                self._screen.tell(_news(job, run))
            self._told[kind] = len(job.runs)

    def _now(self, job: BadJob, workers: list[Worker]) -> str:
        if job.status not in ("queued", "running"):
            return how_ended(job.outcomes, job.status)
        attempt = f"attempt {job.attempts} of {job.max_attempts}"
        worker = next((worker for worker in workers if worker.has(job.id)), None)
        if job.status == "queued":
            now = f"waits for attempt {job.attempts + 1}"
        elif worker is not None:
            now = f"{attempt} runs as pid {worker.pid}"
        elif job.kind == WRITES_LATE and job.attempts == 1:
            now = f"{attempt} is frozen, its supervisor too; {self._lease_left()}"
        else:
            now = f"{attempt} has just ended"
        return f"{', '.join(job.outcomes)}; {now}" if job.runs else now

    def _lease_left(self) -> str:
        left = self._frozen_at + LEASE - time.monotonic()
        return f"its lease ends in {left:.0f} s" if left > 0 else "its lease is over"

    # ---- the end

    def _drained(self, look: Onlooker) -> Facts:
        age, alive = self._steady.age, self._steady.is_alive()
        if not self._awake:
            self._frozen.wake_worker()
            self._frozen.wake()
        deaths = [event["death"] for event in self._steady.events(DIED)]
        exit_codes = [self._steady.drain(), self._frozen.drain()]
        self._screen.tell("both supervisors are drained")
        return Facts(
            counts=look.counts(),
            bad=look.bad_jobs(),
            reports=look.reports(),
            late_write_refused=self._late_write_refused(),
            deaths=deaths,
            pid=self._steady.pid,
            age=age,
            same_process=alive,
            exit_codes=exit_codes,
        )


def _news(job: BadJob, run: dict[str, object]) -> str:
    name, attempt = NAMES[job.kind], f"attempt {run['attempt']}"
    match run["outcome"]:
        case "failed":
            text = f"{attempt} failed"
        case "crashed":
            text = f"{attempt} took its worker down"
        case "overran":
            text = f"{attempt} was killed at its max runtime"
        case "lost":
            text = f"{attempt} is lost, its lease is over; the other supervisor takes it"
        case outcome:
            text = f"{attempt} is {outcome}"
    return f"{name}: {text}"
