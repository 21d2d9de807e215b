"""One worker serves every tenant in turn, and none of them sees another's."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from psycopg import sql

from fencepost import enqueue
from fencepost.jobs.migrate import migrate
from fencepost.jobs.roles import Roles, script
from support import hostile_run
from support.databases import Database
from support.hostile import LEFT
from support.jobs import Jobs
from support.processes import Supervisor
from support.waiting import wait_until

TENANTS = 100


def test_what_a_job_does_to_the_tenant_is_gone_with_its_transaction(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C62, promise 9: 100 tenants on two workers, half of them failing, crashing or setting the tenant for the session."""
    database.execute(
        """
        create table test.invoices (tenant_id int not null, number int not null);
        insert into test.invoices
            select tenant, number from generate_series(1, 100) tenant, generate_series(1, 1000 / tenant) number;
        alter table test.invoices enable row level security;
        alter table test.invoices force row level security;
        create policy by_tenant on test.invoices
            using (tenant_id = nullif(current_setting('app.tenant', true), '')::int);
        grant select on test.invoices to public;
        """
    )
    ways = ["well", "raises", "well", "dies", "well", "sets_for_session", "well", "sets_role_and_temp"]
    enqueued = {
        tenant: jobs.enqueue("counts_invoices", {"way": ways[tenant % len(ways)]}, tenant=tenant, max_attempts=1)
        for tenant in range(1, TENANTS + 1)
    }
    supervisor = start_supervisor(concurrency=2, backoff="0.1s")
    for tenant, job in enqueued.items():
        way = ways[tenant % len(ways)]
        row = jobs.wait_for(job, ("done", "dead"), within=50)
        assert row.status == ("dead" if way in ("raises", "dies") else "done"), (way, row)
        if row.status == "done":
            # Gone with the transaction, not only with the job; and nothing of an earlier job is there.
            assert row.result == {"before": [], "between": [], "count": 1000 // tenant}
    assert supervisor.is_alive()
    # Each of them, however many jobs of the kind have left nothing before.
    leaving = [tenant for tenant in enqueued if ways[tenant % len(ways)].startswith("sets_")]
    named = "left something in its session"
    wait_until(lambda: sum(named in line["event"] for line in supervisor.logs()) == len(leaving), what="all that is named")


def test_many_jobs_use_one_session(start_supervisor: Callable[..., Supervisor], jobs: Jobs) -> None:
    """C57, rule 19: what cleans the session after each job does not cost the session, not at the seventh job either."""
    enqueued = [jobs.enqueue("tells_its_backend") for _ in range(25)]
    start_supervisor(concurrency=1)
    assert len({jobs.wait_for(job, within=15).result for job in enqueued}) == 1


def test_a_job_works_as_its_role_and_is_kept_out_of_the_queue(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """Rule 5: fence and finish need no right of that role on the queue, in both ways of having a transaction."""
    role = f"job_{database.name}"
    database.execute(
        f"""
        create role {role};
        grant {role} to {database.worker};
        grant usage on schema fencepost, test to {role};
        grant execute on function fencepost.hold, fencepost.finish to {role};
        grant select, insert on test.rows to {role};
        """
    )
    supervisor = start_supervisor(job_role=role)
    job, once = jobs.enqueue("tells_its_role"), jobs.enqueue("writes_quickly")
    assert jobs.wait_for(job).result == [role, "kept out"]
    jobs.wait_for(once)
    assert len(jobs.rows()) == 2
    supervisor.stop()
    database.execute(f"drop owned by {role}; drop role {role}")


def test_jobs_run_with_the_roles_that_are_recommended(
    roles: Roles, empty_database: Database, start_supervisor: Callable[..., Supervisor]
) -> None:
    """C66, C117: from nothing, in the order that the printed SQL tells; and such a job can enqueue another."""
    printed = script("fencepost", roles, "app.tenant")
    empty_database.add_test_tables()
    with empty_database.conn() as conn:
        conn.execute(printed)
        conn.execute("select set_config('role', %s, false)", [roles.owner])
        migrate(conn, "fencepost")
        conn.execute("reset role")
        conn.execute(printed)
        job_role = sql.Identifier(roles.job)
        conn.execute(sql.SQL("grant usage on schema test to {0}; grant select, insert on test.rows to {0}").format(job_role))
        conn.execute("select set_config('role', %s, false)", [roles.enqueuer])
        told, follows = (enqueue(conn, kind, tenant=1) for kind in ("tells_its_role", "writes_async"))
    jobs = Jobs(empty_database)
    start_supervisor(empty_database.server.url(empty_database.name, roles.worker), job_role=roles.job)
    assert jobs.wait_for(told).result == [roles.job, "kept out"]
    jobs.wait_for(follows)
    wait_until(
        lambda: empty_database.value("select count(*) from fencepost.jobs where status = 'done'") == 3,
        what="the job that a job has enqueued",
    )


def test_a_job_may_try_again_to_begin_a_transaction_that_could_not_begin(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database, tmp_path: Path
) -> None:
    """Its role was taken from the login for a while, say: what did not begin is not open."""
    role, go = f"job_{database.name}", tmp_path / "go"
    database.execute(
        f"""
        create role {role};
        grant {role} to {database.worker};
        grant usage on schema fencepost, test to {role};
        grant execute on function fencepost.hold, fencepost.finish to {role};
        grant insert on test.rows to {role};
        """
    )
    supervisor = start_supervisor(job_role=role)
    supervisor.wait_for_workers(2)
    database.execute(f"revoke {role} from {database.worker}")
    job = jobs.enqueue("tries_to_begin_again", {"go": str(go)})
    jobs.wait_for_mark(job, note="refused: 42501")
    database.execute(f"grant {role} to {database.worker}")
    go.touch()
    assert jobs.wait_for(job).result >= 1
    assert len(jobs.rows(job)) == 1
    supervisor.stop()
    database.execute(f"drop owned by {role}; drop role {role}")


def test_a_job_without_a_tenant_does_not_run_as_nobody(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C64: enqueued past the check, it is dead at once, and says why; a tenantless handler runs without."""
    start_supervisor()
    (job,) = database.execute("select fencepost.enqueue('ok') as id")
    dead = jobs.wait_for(job.id, "dead")
    assert "needs a tenant" in dead.last_error
    assert jobs.marks(job.id) == []
    (job,) = database.execute("select fencepost.enqueue('tenantless') as id")
    assert jobs.wait_for(job.id).result == {"tenant": None}


def test_no_session_of_ours_is_idle_in_a_transaction_and_nothing_is_left(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """C38, promise 11: a thousand jobs, sampled all the while; afterwards no session and no process."""
    supervisor = start_supervisor(concurrency=2)
    supervisor.wait_for_workers(2)
    database.execute(
        "select fencepost.enqueue(case n % 2 when 0 then 'quick' else 'writes_quickly' end, tenant => '1')"
        " from generate_series(1, 1000) n"
    )
    sample = """
        select a.application_name, a.query from pg_stat_activity a
        where a.application_name like 'fencepost%%' and a.datname = current_database()
            and a.state like 'idle in transaction%%' and a.query not like '%%test.rows%%' and a.query not like 'begin%%'
            and a.state_change < clock_timestamp() - interval '0.2 s'
    """
    samples = 0
    while database.value("select count(*) from fencepost.jobs where status in ('queued', 'running')"):
        assert database.execute(sample) == []
        samples += 1
    assert samples > 20
    assert database.value("select count(*) from fencepost.jobs where status = 'done' and attempts = 1") == 1000
    assert database.value("select count(*) from test.rows") == 500
    supervisor.stop()
    assert supervisor.process.returncode == 0
    assert supervisor.left() == []
    wait_until(
        lambda: (
            database.value(
                "select count(*) from pg_stat_activity"
                " where application_name like 'fencepost%%' and datname = current_database()"
            )
            == 0
        ),
        within=2,
        what="the end of our sessions",
    )
    assert database.value("select count(*) from fencepost.supervisors") == 0


@pytest.mark.parametrize("seed", [random.randrange(1 << 32)])
def test_nothing_that_jobs_do_to_their_sessions_reaches_another(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database, seed: int
) -> None:
    """C62, C72: jobs of a hundred tenants, in random order, each leaving something behind; and what they left is named."""
    role = hostile_run.prepare(database)
    supervisor = start_supervisor(handlers="hostile", concurrency=2, backoff="0.1s")
    try:
        ended = hostile_run.run(database, jobs, supervisor, role, count=100, seed=seed, within=50)
    finally:
        supervisor.stop()
        hostile_run.forget(database, role)
    assert ended["done returns"] > 40
    assert [what for what in ended if what.startswith("done") and what != "done returns"] == []


def test_what_a_job_has_left_in_its_session_is_named_with_its_kind(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """A warning, in words, where there is something; and the session is kept, prepared statements or not."""
    role = hostile_run.prepare(database)
    supervisor = start_supervisor(handlers="hostile,handlers_for_tests,handlers_of_accidents", concurrency=1)
    try:
        backend = jobs.wait_for(jobs.enqueue("tells_its_backend")).result
        for way in LEFT:
            jobs.wait_for(jobs.enqueue(f"leaves {way}", {"role": role}))
        assert jobs.wait_for(jobs.enqueue("tells_its_backend")).result == backend
    finally:
        supervisor.stop()
        hostile_run.forget(database, role)
    named = {line["kind"]: line["left"] for line in supervisor.logs() if "left something in its session" in line["event"]}
    assert named == {f"leaves {way}": words for way, words in LEFT.items() if words}


OPEN = ("an open COPY", "an open stream", "an open pipeline")


def test_what_a_job_has_left_open_in_its_transaction_fails_it_and_nothing_is_written(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """Promises 3, 10: a COMMIT behind it would not be sent, or not be answered. Soon, and it costs neither slot nor worker."""
    hostile_run.prepare(database, role=False)
    supervisor = start_supervisor(handlers="hostile,handlers_for_tests,handlers_of_accidents", concurrency=1, max_attempts=1)
    (worker,) = supervisor.wait_for_workers(1)
    for way in OPEN:
        for kind in (f"leaves {way}", f"leaves {way} at once"):
            dead = jobs.wait_for(jobs.enqueue(kind, {"role": ""}), "dead", within=5)
            assert "open in its transaction" in dead.last_error, (kind, dead.last_error)
    assert database.value("select count(*) from test.effects") == 0
    assert jobs.wait_for(jobs.enqueue("ok")).attempts == 1
    assert supervisor.wait_for_workers(1) == [worker]


def test_what_a_thread_still_sends_as_the_transaction_ends_is_in_it_or_nowhere(
    start_supervisor: Callable[..., Supervisor], jobs: Jobs, database: Database
) -> None:
    """Promises 2, 9: behind the COMMIT it would be a transaction of its own, without tenant, role and fence."""
    hostile_run.prepare(database, role=False)
    database.execute("create table test.outside (run text); grant insert on test.outside to public")
    start_supervisor(handlers="hostile", concurrency=2, max_attempts=1)
    enqueued = [jobs.enqueue("races_its_end", {"turns": 150}) for _ in range(4)]
    for job in enqueued:
        jobs.wait_for(job, ("done", "dead"), within=30)
    assert database.value("select count(*) from test.outside") > 0
    assert database.value("select count(*) from test.outside where coalesce(run, '') = ''") == 0
