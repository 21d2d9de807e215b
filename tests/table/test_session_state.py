"""What a session reads like before any job had it, and after one that has left nothing."""

from __future__ import annotations

import time
from functools import partial

import pytest

from fencepost.jobs.cleaning import BETWEEN_LOOKS, Cleaning, session_state
from fencepost.jobs.transaction import Context, Held, Transactions
from support.databases import Database
from support.jobs import Jobs
from support.servers import Server
from support.verbs import Verbs
from support.waiting import wait_until

RUN = Held(1, 1, "w:1")


CHANGES = {
    "there before": {"before": "create"},
    "made between two jobs": {"between": "create"},
    "made in the middle of a job": {"within": "create"},
    "made while there was no job, and cured in the middle of one": {"between": "create; rest", "at the end": "cure"},
    "cured in the middle of a job": {"before": "create", "at the end": "cure"},
    "one behind a hundred": {"before": "crowd; create"},
}
"""When something is done to the function that reads the tenant, and is said to be immutable."""


def a_run(database: Database) -> Held:
    """Return a run that holds its job."""
    Jobs(database).enqueue("ok")
    with database.worker_conn() as conn:
        claimed = Verbs(conn).must_claim()
    return Held(claimed.id, claimed.fence, claimed.name)


def ended(moment: float) -> bool:
    return time.monotonic() > moment


@pytest.fixture
def transactions() -> Transactions:
    """A session's transactions. Who uses them gives them their cleaning."""
    return Transactions()


@pytest.mark.parametrize("put_off", [False, True], ids=["at once", "with the next begin"])
@pytest.mark.parametrize(("setting", "tenant"), [("app.tenant", "7"), ("", "")], ids=["with tenants", "without"])
def test_a_session_in_which_nothing_was_left_reads_as_new(
    database: Database, transactions: Transactions, setting: str, tenant: str, *, put_off: bool
) -> None:
    """Else every setting is looked at behind each job, which takes as long as a short one."""
    told: list[str] = []
    with database.worker_conn(prepare_threshold=None) as conn:
        new = session_state(conn, "fencepost", setting)
        transactions.cleaning = cleaning = Cleaning(conn, "fencepost", setting)
        for _ in range(3):
            transactions.begin(conn, "fencepost", RUN, Context(setting, tenant, "", 60_000))
            transactions.roll_back(conn, "fencepost")
            assert session_state(conn, "fencepost", setting) == new
            if put_off:
                cleaning.put_off(told.append)
            else:
                told.append(cleaning.clean(thoroughly=False))
            assert session_state(conn, "fencepost", setting) == new
    assert "".join(told) == ""


@pytest.mark.parametrize("committed", [False, True], ids=["rolled back", "committed"])
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_no_plan_with_a_tenant_in_it_is_there_for_the_next_one(
    fresh_database: Database, transactions: Transactions, changes: dict[str, str], *, committed: bool
) -> None:
    """A policy calls an immutable function for speed, and a function of the application's own keeps its plan."""
    database = fresh_database
    database.execute(
        f"""
        create table test.of_tenants (tenant int not null);
        insert into test.of_tenants values (7), (8), (9), (10);
        create function test.tenant() returns int language sql stable
            as $$ select nullif(current_setting('app.tenant', true), '')::int $$;
        alter table test.of_tenants enable row level security;
        create policy by_tenant on test.of_tenants using (tenant = test.tenant());
        create function test.seen() returns int language plpgsql
            as $$ begin return (select min(tenant) from test.of_tenants); end $$;
        grant select on test.of_tenants to {database.worker};
        """
    )

    def change(moment: str) -> None:
        for what in changes.get(moment, "").split("; "):
            if what == "crowd":
                for number in range(100):
                    database.execute(f"create function test.one_of_many_{number}() returns int language sql as 'select 1'")
            elif what == "rest":
                ends = time.monotonic() + BETWEEN_LOOKS
                wait_until(partial(ended, ends), what="the end of what one look speaks for")
            elif what:
                database.execute(f"alter function test.tenant() {'immutable' if what == 'create' else 'stable'}")

    with database.worker_conn(prepare_threshold=None) as conn:
        transactions.cleaning = cleaning = Cleaning(conn, "fencepost", "app.tenant")
        held = a_run(database)
        change("before")
        for tenant in (7, 8, 9, 10):
            if tenant == 9:
                change("between")
            transactions.begin(conn, "fencepost", held, Context("app.tenant", str(tenant), "", 60_000))
            if tenant == 9:
                change("within")
            assert conn.execute("select test.seen()").fetchone() == (tenant,)
            if tenant == 9:
                change("at the end")
            if committed:
                transactions.commit(conn, "fencepost", held)
            else:
                transactions.roll_back(conn, "fencepost")
            cleaning.clean(thoroughly=False)


def test_plans_are_kept_where_no_tenant_can_be_in_them(fresh_database: Database, transactions: Transactions) -> None:
    """From the second job on: the first look says nothing of the time before it."""
    forgotten = []
    held = a_run(fresh_database)
    with fresh_database.worker_conn(prepare_threshold=None) as conn:
        transactions.cleaning = cleaning = Cleaning(conn, "fencepost", "app.tenant")
        for _ in range(5):
            transactions.begin(conn, "fencepost", held, Context("app.tenant", "7", "", 60_000))
            transactions.commit(conn, "fencepost", held)
            cleaning.put_off(lambda _: None)
            forgotten.append("forget_plans" in cleaning.begins())
            cleaning.clean(thoroughly=False)
    assert forgotten == [True, False, False, False, False]


LEFT = {
    "set app.tenant = '9'": ("the tenant", "the tenant"),
    "set role pg_monitor": ("a role", "a role"),
    "set search_path = pg_temp; set timezone = 'Asia/Tokyo'": ("settings (TimeZone, search_path)",) * 2,
    "set client_encoding = 'latin1'; set app.tenant = 'Müller'": ("the tenant, settings (client_encoding)",) * 2,
    "set default_transaction_read_only = on; set application_name = 'x'": (
        "settings (application_name, default_transaction_read_only)",
    )
    * 2,
    "set default_transaction_isolation = 'serializable'": ("", "settings (default_transaction_isolation)"),
    "listen x; prepare x as select 1; set app.tenant = '9'": ("the tenant", "the tenant, LISTEN, prepared statements"),
    "begin; declare x cursor with hold for select 1; commit": ("", "cursors"),
    "create temporary table x (); select pg_advisory_lock(1)": ("", "temporary tables, advisory locks"),
}


@pytest.mark.parametrize(("statements", "words"), LEFT.items(), ids=[words[True] for words in LEFT.values()])
def test_what_was_left_is_gone_where_the_cleaning_travels_with_a_begin(
    database: Database, transactions: Transactions, statements: str, words: tuple[str, str]
) -> None:
    """And stays so if that is rolled back."""
    database.execute(f"grant pg_monitor to {database.worker}")
    told: list[str] = []
    with database.worker_conn(prepare_threshold=None) as conn:
        new = session_state(conn, "fencepost", "app.tenant")
        transactions.cleaning = cleaning = Cleaning(conn, "fencepost", "app.tenant")
        for _ in range(2):
            conn.execute(statements.encode())
            cleaning.put_off(told.append)
            transactions.begin(conn, "fencepost", RUN, Context("app.tenant", "7", "", 60_000))
            assert conn.execute("select current_setting('app.tenant')").fetchone() == ("7",)
            transactions.roll_back(conn, "fencepost")
            assert session_state(conn, "fencepost", "app.tenant") == new
            assert cleaning.clean(thoroughly=True) == ""
    assert told == [words[False]] * 2 * bool(words[False])


@pytest.mark.parametrize("thoroughly", [False, True])
@pytest.mark.parametrize(("statements", "words"), LEFT.items(), ids=[words[True] for words in LEFT.values()])
def test_what_was_left_is_named_and_gone(
    database: Database, statements: str, words: tuple[str, str], *, thoroughly: bool
) -> None:
    """What another job would notice first by either look, in the same words."""
    database.execute(f"grant pg_monitor to {database.worker}")
    with database.worker_conn(prepare_threshold=None) as conn:
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
        database.execute("alter system set datestyle = 'german'")
        database.execute("select pg_reload_conf()")
        wait_until(lambda: session_state(conn, "fencepost", "app.tenant")["DateStyle"] == "German, DMY", what="the new one")
        conn.execute("set timezone = 'Asia/Tokyo'")
        assert cleaning.clean(thoroughly=False) == "settings (TimeZone)"
        assert [cleaning.clean(thoroughly=thoroughly) for thoroughly in (False, True)] == ["", ""]
    database.close()
