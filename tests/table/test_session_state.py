"""What a session reads like before any job had it, and after one that has left nothing."""

from __future__ import annotations

import pytest

from fencepost.jobs.transaction import Cleaning, Context, Held, begin, roll_back, session_state
from support.databases import Database
from support.servers import Server
from support.waiting import wait_until

RUN = Held(1, 1, "w:1")


@pytest.mark.parametrize(("setting", "tenant"), [("app.tenant", "7"), ("", "")], ids=["with tenants", "without"])
def test_a_session_in_which_nothing_was_left_reads_as_new(database: Database, setting: str, tenant: str) -> None:
    """Else every setting is looked at behind each job, which takes as long as a short one."""
    with database.worker_conn() as conn:
        new = session_state(conn, "fencepost", setting)
        cleaning = Cleaning(conn, "fencepost", setting)
        for _ in range(2):
            begin(conn, "fencepost", RUN, Context(setting, tenant, "", 60_000))
            roll_back(conn, "fencepost")
            assert session_state(conn, "fencepost", setting) == new
            assert cleaning.clean(thoroughly=False) == ""
            assert session_state(conn, "fencepost", setting) == new


def test_no_plan_with_a_tenant_in_it_is_there_for_the_next_one(database: Database) -> None:
    """A policy calls an immutable function for speed, and a function of the application's own keeps its plan."""
    database.execute(
        f"""
        create table test.of_tenants (tenant int not null);
        insert into test.of_tenants values (7), (8);
        create function test.tenant() returns int language sql immutable
            as $$ select nullif(current_setting('app.tenant', true), '')::int $$;
        alter table test.of_tenants enable row level security;
        create policy by_tenant on test.of_tenants using (tenant = test.tenant());
        create function test.seen() returns int language plpgsql
            as $$ begin return (select min(tenant) from test.of_tenants); end $$;
        grant select on test.of_tenants to {database.worker};
        """
    )
    with database.worker_conn() as conn:
        cleaning = Cleaning(conn, "fencepost", "app.tenant")
        for tenant in (7, 8):
            begin(conn, "fencepost", RUN, Context("app.tenant", str(tenant), "", 60_000))
            assert conn.execute("select test.seen()").fetchone() == (tenant,)
            roll_back(conn, "fencepost")
            cleaning.clean(thoroughly=False)


LEFT = {
    "set app.tenant = '9'": ("the tenant", "the tenant"),
    "set role pg_monitor": ("a role", "a role"),
    "set search_path = pg_temp; set timezone = 'Asia/Tokyo'": ("settings (TimeZone, search_path)",) * 2,
    "listen x; prepare x as select 1; set app.tenant = '9'": ("the tenant", "the tenant, LISTEN, prepared statements"),
    "begin; declare x cursor with hold for select 1; commit": ("", "cursors"),
    "create temporary table x (); select pg_advisory_lock(1)": ("", "temporary tables, advisory locks"),
}


@pytest.mark.parametrize("thoroughly", [False, True])
@pytest.mark.parametrize(("statements", "words"), LEFT.items(), ids=[words[True] for words in LEFT.values()])
def test_what_was_left_is_named_and_gone(
    database: Database, statements: str, words: tuple[str, str], *, thoroughly: bool
) -> None:
    """What another job would notice first by either look, in the same words."""
    database.execute(f"grant pg_monitor to {database.worker}")
    with database.worker_conn() as conn:
        new, cleaning = session_state(conn, "fencepost", "app.tenant"), Cleaning(conn, "fencepost", "app.tenant")
        conn.execute(statements.encode())
        assert cleaning.clean(thoroughly=thoroughly) == words[thoroughly]
        assert cleaning.clean(thoroughly=True) == ""
        assert session_state(conn, "fencepost", "app.tenant") == new


def test_what_the_server_has_changed_was_left_by_no_job(own_server: Server) -> None:
    """Its configuration is read again in the session: of two settings that read otherwise, the job's is named, once."""
    database = Database(own_server, "postgres")
    with database.conn() as conn:
        cleaning = Cleaning(conn, "fencepost", "app.tenant")
        database.execute("alter system set work_mem = '7MB'")
        database.execute("select pg_reload_conf()")
        wait_until(lambda: session_state(conn, "fencepost", "app.tenant")["work_mem"] == "7MB", what="the new configuration")
        conn.execute("set timezone = 'Asia/Tokyo'")
        assert cleaning.clean(thoroughly=False) == "settings (TimeZone)"
        assert [cleaning.clean(thoroughly=thoroughly) for thoroughly in (False, True)] == ["", ""]
    database.close()
