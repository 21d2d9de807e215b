"""Another server takes over: a standby is promoted, while the server before it is killed, or lives on and only reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from support.databases import Database
from support.jobs import Jobs
from support.processes import Supervisor
from support.servers import Server
from support.waiting import wait_until

LISTENING = """
    select count(*) from pg_stat_activity
    where application_name like 'fencepost %% listen' and query_start is not null and datname = %s
"""


def tells_of_the_loss_of(job: int, line: dict[str, Any]) -> bool:
    return line["event"].startswith("the lease was lost") and line.get("job") == job


class Pair:
    """A database on a server and on its standby. `url` names both, as an operator would."""

    def __init__(self, database: Database, standby: Server) -> None:
        self.old = database
        self.new = Database(standby, database.name)
        hosts = f"127.0.0.1:{database.server.port},127.0.0.1:{standby.port}"
        self.url = f"postgresql://{database.worker}@{hosts}/{database.name}?target_session_attrs=read-write"

    def wait_for(self, state: str) -> None:
        """Wait until the standby is said to be `async` or `sync`."""
        said = "select count(*) from pg_stat_replication where state = 'streaming' and sync_state = %s"
        wait_until(lambda: self.old.value(said, [state]) == 1, what=f"a standby that is {state}")

    def set_on_the_old(self, **settings: str) -> None:
        """Have the old server read other settings; our own session there may still write."""
        for name, value in settings.items():
            self.old.execute(f"alter system set {name} = '{value}'")
        loaded_at = self.old.value("select pg_conf_load_time()")
        self.old.execute("select pg_reload_conf()")
        wait_until(lambda: self.old.value("select pg_conf_load_time()") > loaded_at, what="the new configuration")
        self.old.execute("set default_transaction_read_only = off")

    def catch_up(self) -> None:
        """Wait until the standby has all that there is."""
        lacks = "select count(*) from pg_stat_replication where replay_lsn = pg_current_wal_lsn()"
        wait_until(lambda: self.old.value(lacks) == 1, what="a standby that lacks nothing")

    def only_reads(self) -> None:
        """Have the old server tell its sessions only to read. What had begun before is over, and the standby has it."""
        self.set_on_the_old(default_transaction_read_only="on")
        told_at = self.old.value("select clock_timestamp()")
        older = "select count(*) from pg_stat_activity where datname = %s and xact_start <= %s"
        wait_until(lambda: self.old.value(older, [self.old.name, told_at]) == 0, what="the end of what had begun before")

    def cut_off(self) -> None:
        """Have the standby learn of nothing any more. (One that is told to pause replays all that it has when promoted.)"""
        self.catch_up()
        self.new.execute("alter system set primary_conninfo = ''")
        self.new.execute("select pg_reload_conf()")
        wait_until(lambda: self.new.value("select count(*) from pg_stat_wal_receiver") == 0, what="the end of replication")

    def promote(self) -> None:
        """Have the standby take over."""
        assert self.new.value("select pg_promote(wait => true)")


@pytest.fixture
def pair(
    own_server: Server, migrated_database: Callable[[Server], Database], start_standby: Callable[[Server], Server]
) -> Iterator[Pair]:
    """A server, and a standby of it that it does not wait for. Both are gone with the test, and so is the database on them."""
    database = migrated_database(own_server)
    made = Pair(database, start_standby(own_server))
    made.wait_for("async")
    yield made
    made.old.close()
    made.new.close()


@pytest.mark.parametrize("old", ["killed", "read-only"])
def test_jobs_run_on_where_the_standby_takes_over_and_no_attempt_is_burnt(
    pair: Pair, start_supervisor: Callable[..., Supervisor], old: str
) -> None:
    """C45: by a synchronous standby; all that was claimed is still counted, and all is left that was had of the old server."""
    before, jobs = Jobs(pair.old), Jobs(pair.new)
    pair.set_on_the_old(synchronous_standby_names="*")
    pair.wait_for("sync")
    handlers = "handlers_for_tests,handlers_of_accidents,handlers_of_sessions"
    supervisor = start_supervisor(pair.url, handlers=handlers, concurrency=3, lease="20s", heartbeat="1s", poll="30s")
    workers = supervisor.wait_for_workers(3)
    flag = supervisor.folder / "go"
    # One that uses no database meanwhile, one that had a transaction before and has another after, and load beside them.
    through = before.enqueue("sleeps_without_database", {"seconds": 3})
    writes = before.enqueue("writes_before_and_when_told", {"path": str(flag)})
    load = [before.enqueue("writes_once", {"seconds": 0.05}) for _ in range(20)]
    wait_until(lambda: before.rows(writes), what="its first row")
    before.wait_for(load[3])

    if old == "killed":
        counted = {row.id: row.attempts for row in pair.old.execute("select id, attempts from fencepost.jobs")}
        pair.old.close()
        pair.old.server.kill()
    else:
        # Nothing ends its sessions, and it waits for no standby: whoever wrote there would be told that it is written.
        pair.only_reads()
        pair.set_on_the_old(synchronous_standby_names="")
        counted = {row.id: row.attempts for row in pair.old.execute("select id, attempts from fencepost.jobs")}
        pair.catch_up()
    pair.promote()
    flag.touch()
    promoted_at = time.monotonic()

    assert jobs.wait_for(writes, within=10).attempts == 1
    assert [row.note for row in jobs.rows(writes)] == ["before", "told"]
    assert jobs.wait_for(through, within=10).attempts == 1
    for job in load:
        jobs.wait_for(job, within=10)
        assert len(jobs.rows(job)) == 1
        runs = jobs.runs(job)
        assert all(earlier.finished_at <= later.started_at for earlier, later in pairwise(runs))
        # A kill that was meant for the run before, which the new server knows nothing of, costs no attempt.
        assert jobs.get(job).attempts == len([run for run in runs if run.outcome != "interrupted"])
    assert all(jobs.get(job).attempts >= attempts for job, attempts in counted.items())
    # Listened for there, since the next poll is far away.
    wait_until(lambda: pair.new.value(LISTENING, [pair.new.name]) == 1, within=10, what="a session that listens there")
    row = jobs.wait_for(jobs.enqueue("ok"))
    assert row.attempts == 1
    assert (row.started_at - row.created_at).total_seconds() < 3
    print(f"all after {time.monotonic() - promoted_at:.1f} s")
    if old == "read-only":
        assert pair.old.value(LISTENING, [pair.old.name]) == 0
        assert [row.note for row in before.rows(writes)] == ["before"]
    assert supervisor.workers() == workers
    assert len(supervisor.lines()) < 200


def test_what_only_the_lost_server_knew_holds_nobody_up(pair: Pair, start_supervisor: Callable[..., Supervisor]) -> None:
    """C45: an enqueue, a claim, a finish and a supervisor that the standby never heard of; each of its jobs comes to rest."""
    before, jobs = Jobs(pair.old), Jobs(pair.new)
    handlers = "handlers_for_tests,handlers_of_sessions"
    settings = {"handlers": handlers, "lease": "4s", "heartbeat": "0.8s", "sweep": "0.3s", "log_level": "info"}
    knows = start_supervisor(pair.url, concurrency=1, **settings)
    # So that it has a session that books deaths.
    before.wait_for(before.enqueue("kills_itself", max_attempts=1), "dead")
    flag = knows.folder / "go"
    finished = before.enqueue("writes_before_and_when_told", {"path": str(flag)})
    wait_until(lambda: before.rows(finished), what="its first row")
    last = knows.folder / "last"
    claimed = before.enqueue("writes_before_and_when_told", {"path": str(last)}, queue="other")
    pair.cut_off()

    unheard = start_supervisor(pair.url, concurrency=2, queues="other", **settings)
    unheard.wait_for_workers(2)
    wait_until(lambda: before.rows(claimed), what="the first row of a claim that will be lost")
    enqueued = before.enqueue("slow", {"seconds": 60}, queue="other")
    before.wait_for_mark(enqueued)
    flag.touch()
    before.wait_for(finished)
    # Longer than a lease: what the sweep has looked at on the old server lies before all that runs out on the new one.
    late = before.enqueue("quick", after=4.2)
    before.wait_for(late)
    pair.set_on_the_old(default_transaction_read_only="on")
    pair.promote()
    promoted_at = time.monotonic()

    # Void, by its name: the new server hands out the same fence again.
    for job in (claimed, enqueued):
        unheard.wait_for_log(partial(tells_of_the_loss_of, job))
    last.touch()
    assert jobs.wait_for(claimed).attempts == 1
    assert [row.note for row in jobs.rows(claimed)] == ["before", "told"]
    assert jobs.wait_for(finished).attempts == 2
    assert jobs.outcomes(finished) == ["lost", "done"]
    print(f"all after {time.monotonic() - promoted_at:.1f} s")
    assert pair.new.value("select count(*) from fencepost.jobs where status in ('queued', 'running')") == 0
    # Booked where it was claimed, and not swept when its lease is over: on the old server nothing is held by this worker.
    crashes = jobs.enqueue("kills_itself", max_attempts=1)
    jobs.wait_for(crashes, "dead")
    assert jobs.outcomes(crashes) == ["crashed"]
    # Registered again, and at peace.
    wait_until(lambda: pair.new.value("select count(*) from fencepost.supervisors") == 2, what="two supervisors' rows")
    unheard.wait_for_workers(2)
    knows.wait_for_workers(1)
    assert [len([line for line in one.logs() if line["event"] == "a worker has died"]) for one in (knows, unheard)] == [2, 2]
    assert all(len(one.lines()) < 60 for one in (knows, unheard))
