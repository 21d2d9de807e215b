"""A database does to the supervisor what it can: any statement fails, or is never answered. The supervisor lives."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from itertools import chain

import pytest
from structlog.testing import capture_logs

from fencepost.board import boottime
from fencepost.jobs.sql import statement
from fencepost.settings import read
from fencepost.supervisor import booking
from fencepost.supervisor.database import Away, Link
from fencepost.supervisor.deaths import STATUS_LOST, DeadWorker
from fencepost.supervisor.state import State
from support.databases import Database
from support.faults import END, OF_OTHERS, SETTINGS, SOONER, START, WORK, Field, at_the_start, in_rounds, while_working
from support.jobs import Jobs
from support.processes import Supervisor
from support.proxy import CONNECT, Fault, Proxy, names
from support.waiting import wait_until

SEED = int(os.environ.get("SEED", random.randrange(1 << 32)))
AT_ONCE = 3


def test_every_statement_is_one_that_is_made_to_fail_or_one_of_others() -> None:
    """A new file in fencepost/jobs has to be named in tests/support/faults.py."""
    ours = {*chain(*WORK.values(), START, END)} - {CONNECT}
    others = {*chain(*OF_OTHERS.values())}
    assert not ours & others
    assert sorted(ours | others) == names()


def test_no_statement_that_fails_or_hangs_stops_the_supervisor_or_its_duties(
    proxy: Proxy, start_supervisor: Callable[..., Supervisor], database: Database
) -> None:
    """A heartbeat and a booking that are never answered, and a few faults by a seed: `make statements` has all of them."""
    chance = random.Random(SEED)
    first = proxy.arm(chance.choice(at_the_start()))
    faults = in_rounds(while_working(), chance, AT_ONCE)[0]
    print(f"SEED={SEED}", first, *faults, sep="\n")
    supervisor = start_supervisor(proxy.url(database.worker_url), files=SOONER, **SETTINGS)
    supervisor.wait_for_workers(4)
    assert first.hit.is_set()
    field = Field(supervisor, proxy, database)
    field.go_through([Fault("heartbeat", "heartbeat", "hang_before"), Fault("finish", "booking", "hang_before")])
    field.go_through(faults)
    assert not field.unknown()


def test_a_cleaning_travels_also_behind_a_job_that_has_finished_itself(
    proxy: Proxy, start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """A message by itself for each such job would be the fifth of five."""
    start_supervisor(proxy.url(database.worker_url), concurrency=1)
    for job in [jobs.enqueue("writes_once") for _ in range(20)]:
        jobs.wait_for(job)
    assert ("worker", "end") in proxy.seen


def test_a_short_lease_is_kept_although_the_heartbeat_has_to_connect_and_is_refused(
    proxy: Proxy, start_supervisor: Callable[..., Supervisor], database: Database
) -> None:
    """Rule 10: what is waited between two connects is not longer than the lease bears."""
    supervisor = start_supervisor(proxy.url(database.worker_url), **{**SETTINGS, "lease": "3s", "heartbeat": "0.6s"})
    jobs = Jobs(database)
    job = jobs.enqueue("waits_for_a_file", {"path": str(supervisor.folder / "go")})
    leased_until = wait_until(lambda: jobs[job].locked_until, what="the lease")
    wait_until(lambda: jobs[job].locked_until > leased_until, what="a heartbeat")
    refusals = [proxy.arm(Fault(CONNECT, "heartbeat", "error", "53300")) for _ in range(3)]
    proxy.cut("heartbeat")
    wait_until(lambda: all(refusal.hit.is_set() for refusal in refusals), what="three refusals")
    leased_until = jobs[job].locked_until
    wait_until(lambda: (jobs[job].locked_until or leased_until) > leased_until, within=3, what="another heartbeat")
    (supervisor.folder / "go").touch()
    assert jobs.wait_for(job).attempts == 1


def test_nothing_stays_open_of_a_statement_that_is_never_answered(
    proxy: Proxy, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver would wait for what it has cancelled, ten seconds or without end."""
    monkeypatch.setenv("DATABASE_URL", proxy.url(database.worker_url))
    monkeypatch.setattr("fencepost.supervisor.database.CANCEL_MAY_TAKE", 0.2)
    proxy.arm(Fault("moment", "duty", "hang_before"))

    async def hang() -> None:
        link = Link(read(), "duty", "s1", 0.2)
        with pytest.raises(Away):
            await link.run(lambda conn: conn.execute(statement("moment", "fencepost")))
        async with asyncio.timeout(3):
            while proxy.has("duty"):  # noqa: ASYNC110  # the proxy's threads send no event
                await asyncio.sleep(0.02)
        # Another connection serves at once.
        assert await link.run(lambda conn: conn.execute(statement("moment", "fencepost")), 5)
        await link.close()

    asyncio.run(hang())


def test_a_session_that_is_ended_long_after_its_lease_still_gets_time_to_end(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 16, after an outage that was longer than the lease: ended is not gone, and its last statement may still be done."""
    monkeypatch.setenv("DATABASE_URL", database.worker_url)

    async def wait_for_its_end() -> None:
        settings = read()
        link = Link(settings, "booking", "s1", 5)
        state = State(settings, "s1", [], link, link, link)
        dead = DeadWorker("w1", 1, 1, STATUS_LOST, None, None, None)
        await booking._all_gone(state, dead, boottime() - 2 * settings.lease)
        await link.close()

    with database.worker_conn(application_name="fencepost w1"), capture_logs() as told:
        asyncio.run(wait_for_its_end())
    assert told == []
    assert database.value("select count(*) from pg_stat_activity where application_name = 'fencepost w1'") == 0
