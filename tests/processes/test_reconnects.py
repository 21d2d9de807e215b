"""The database comes back, or lets nobody in: how its sessions are had again, and at what price."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise

import psutil
from psycopg import sql

from support.databases import Database
from support.jobs import Jobs
from support.processes import Supervisor
from support.servers import Server
from support.waiting import wait_until


def wait_out(seconds: float) -> None:
    """Wait out a length of time that is itself what is tested."""
    began = time.monotonic()
    wait_until(lambda: time.monotonic() - began > seconds, within=seconds + 1, what="the end of a length of time")


def computed(supervisor: Supervisor) -> float:
    """Return the seconds of processor that the supervisor and its workers have taken so far."""
    taken = [psutil.Process(pid).cpu_times() for pid in (supervisor.pid, *supervisor.workers())]
    return sum(one.user + one.system for one in taken)


def moments(database: Database, about: str) -> list[float]:
    """Return when the server's log says something of this kind."""
    lines = database.server.log.read_text(encoding="utf-8", errors="replace").splitlines()
    found = [re.match(r"(\S+ \S+) UTC", line) for line in lines if about in line]
    return sorted(datetime.fromisoformat(one[1]).timestamp() for one in found if one is not None)


def test_sixteen_workers_come_back_to_a_server_and_not_all_at_once(
    start_server: Callable[..., Server],
    create_database: Callable[[Server], Database],
    start_supervisor: Callable[..., Supervisor],
) -> None:
    """C48, C107, C108: an outage, and a table that is away, cost next to nothing; connects are spread; then we listen again."""
    server = start_server(log_connections="on")
    database = create_database(server)
    jobs = Jobs(database)
    supervisor = start_supervisor(
        database.worker_url, handlers="handlers_of_sessions", concurrency=16, poll="30s", log_level="info"
    )
    workers = supervisor.wait_for_workers(16)
    # Due when the server is away: all workers are wanted as soon as it is back. Two for each, since those who come back by
    # themselves, before the supervisor wakes the others, take more than one.
    made = [jobs.enqueue("rests", {"seconds": 1.5}, after=2) for _ in range(32)]
    database.close()
    server.stop("fast")
    lines, taken = len(supervisor.lines()), computed(supervisor)
    wait_out(5)
    assert computed(supervisor) - taken < 0.1 * 5
    back_at = time.time()
    server.start()
    for job in made:
        assert jobs.wait_for(job, within=15).attempts == 1
    assert supervisor.workers() == workers

    def connects_since() -> list[float]:
        return [at for at in moments(database, f"connection authorized: user={database.worker}") if at > back_at]

    wait_until(lambda: len(connects_since()) >= 16 + 3, what="all workers")
    connects = connects_since()
    in_a_window = max(sum(at <= other < at + 0.2 for other in connects) for at in connects)
    assert in_a_window <= len(connects) / 2, connects

    # Told by notification: the next poll is far away.
    listens = "select count(*) from pg_stat_activity where application_name like '%% listen' and query_start is not null"
    wait_until(lambda: database.value(listens) == 1, within=10, what="the session that listens")
    row = jobs.wait_for(jobs.enqueue("rests", {"seconds": 0}))
    assert (row.started_at - row.created_at).total_seconds() < 2

    database.execute("alter table fencepost.jobs rename to elsewhere")
    taken = computed(supervisor)
    for _ in range(3):
        database.execute("notify fencepost, 'default'")
        wait_out(1)
    assert computed(supervisor) - taken < 0.1 * 3 + 0.1
    assert len(supervisor.lines()) - lines < 60
    # One that was told of while nobody could look is found all the same, and not only by the next poll.
    insert = "insert into fencepost.elsewhere (kind, payload, tenant_id) values ('rests', '{\"seconds\": 0}', '1') returning id"
    job = database.value(insert)
    failures = sum(line["event"] == "a poll failed" for line in supervisor.logs())
    database.execute("notify fencepost, 'default'")
    wait_until(
        lambda: sum(line["event"] == "a poll failed" for line in supervisor.logs()) > failures, what="a look that failed"
    )
    database.execute("alter table fencepost.elsewhere rename to jobs")
    assert jobs.wait_for(job, within=10).attempts == 1
    assert supervisor.workers() == workers


def test_a_password_that_is_changed_in_its_file_needs_no_new_start(
    own_server: Server, own_database: Database, start_supervisor: Callable[..., Supervisor]
) -> None:
    """C51: read for each connect; and while the file is wrong the server is not stormed by each session that is wanted."""
    database, jobs = own_database, Jobs(own_database)
    hba = own_server.data / "pg_hba.conf"
    hba.write_text(f"host all {database.worker} 127.0.0.1/32 scram-sha-256\n{hba.read_text()}", encoding="utf-8")
    file = own_server.folder / "passfile"

    def change(password: str) -> None:
        text = sql.SQL("alter role {} password {}").format(sql.Identifier(database.worker), sql.Literal(password))
        database.owner.execute(text)
        database.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", [database.worker])

    def write(password: str) -> None:
        file.write_text(f"127.0.0.1:{own_server.port}:*:{database.worker}:{password}\n", encoding="utf-8")
        file.chmod(0o600)

    change("first")
    write("first")
    database.execute("select pg_reload_conf()")
    supervisor = start_supervisor(database.worker_url, concurrency=2, environment={"PGPASSFILE": str(file)}, poll="0.5s")
    workers = supervisor.wait_for_workers(2)
    jobs.wait_for(jobs.enqueue("ok"))

    write("second")
    change("second")
    assert jobs.wait_for(jobs.enqueue("ok"), within=10).attempts == 1

    change("third")
    began = time.time()
    job = jobs.enqueue("quick")
    wait_out(5)
    refused = [at for at in moments(database, "password authentication failed") if at > began]
    # Three sessions of the supervisor, and one of each worker; psycopg tries an address once.
    assert 0 < len(refused) <= (3 + 2) * 5
    assert all(later - earlier >= 0 for earlier, later in pairwise(refused))
    write("third")
    assert jobs.wait_for(job, within=10).attempts == 1
    assert supervisor.workers() == workers
