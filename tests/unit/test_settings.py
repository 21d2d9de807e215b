"""Every knob in one place, all refusals at once, and no password in any of them."""

from __future__ import annotations

import builtins
import io
import os
import re
from collections.abc import Callable
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from fencepost.settings import CLOCK_DRIFT, Settings, WrongSettings, enqueue_settings, read, unknown_names

Set = Callable[..., None]


@pytest.fixture
def set_up(monkeypatch: pytest.MonkeyPatch) -> Set:
    """Set FENCEPOST_… variables by their names in small letters, and others by their own."""

    def set_variables(**variables: str) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name if name.isupper() else f"FENCEPOST_{name.upper()}", value)

    return set_variables


def refusals() -> list[str]:
    with pytest.raises(WrongSettings) as caught:
        read()
    return caught.value.lines


def test_without_any_variable_the_defaults_hold() -> None:
    """As the design lists them."""
    settings = read()
    assert (settings.lease, settings.heartbeat, settings.max_runtime, settings.kill_grace) == (60, 15, 300, 1)
    assert (settings.poll, settings.sweep, settings.drain_timeout, settings.boot_timeout) == (1, 1, 25, 60)
    assert (settings.max_attempts, settings.backoff, settings.backoff_max) == (5, 15, 3600)
    assert settings.retention == 7 * 86_400
    assert (settings.queues, settings.schema, settings.tenant_setting) == (("default",), "fencepost", "app.tenant")
    assert 1 <= settings.concurrency <= len(os.sched_getaffinity(0))


def test_settings_cannot_be_changed() -> None:
    """Read once, at the start."""
    with pytest.raises(ValueError, match="frozen"):
        read().lease = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30),
        ("30s", 30),
        ("500ms", 0.5),
        ("5m", 300),
        ("1h", 3600),
        ("7d", 604_800),
        ("1.5s", 1.5),
        (" 20 s ", 20),
        ("0.5m", 30),
    ],
)
def test_a_duration_says_its_unit_or_is_in_seconds(set_up: Set, text: str, seconds: float) -> None:
    """Both forms."""
    set_up(max_runtime=text)
    assert read().max_runtime == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "abc", "-5", "5 minutes", "1e3", "inf", "nan", "1:30", "s", "30 30", "0x10", "5,5"])
def test_what_is_no_duration_is_refused_with_an_example(set_up: Set, text: str) -> None:
    """Not guessed at."""
    set_up(max_runtime=text)
    assert refusals() == [f"{f'FENCEPOST_MAX_RUNTIME={text}':<26} must be a duration, such as 30s"]


@pytest.mark.parametrize(
    "name",
    ["lease", "max_runtime", "backoff_max", "drain_timeout", "boot_timeout", "kill_grace", "poll", "sweep", "retention"],
)
def test_a_duration_beyond_all_dates_is_refused(set_up: Set, name: str) -> None:
    """Neither Python's nor the server's dates go that far: it would fail later, in each worker."""
    set_up(**{name: "999999999999d"})
    (line,) = refusals()
    assert line.startswith(f"FENCEPOST_{name.upper()}=999999999999d")


WRONG = {
    "CONCURRENCY": [
        ("0", "must be at least 1"), ("-3", "at least 1"), ("1001", "at most 1000"),
        ("two", "whole number"), ("1.5", "whole number"), ("", "whole number"),
    ],
    "QUEUES": [("", "must not be empty"), (" , ", "must not be empty")],
    "LEASE": [("0", "more than 0"), ("abc", "duration")],
    "HEARTBEAT": [("0", "more than 0")],
    "POLL": [("0", "more than 0")],
    "SWEEP": [("0s", "more than 0")],
    "BOOT_TIMEOUT": [("0", "more than 0")],
    "RETENTION": [("", "a duration"), ("for ever", "a duration")],
    "MAX_ATTEMPTS": [("0", "at least 1"), ("many", "whole number"), ("3000000000", "at most")],
    "SCHEMA": [("", "1 to 63 bytes"), ("x" * 64, "1 to 63 bytes"), ("100%", "without %")],
    "ALLOW_BYPASSRLS": [("perhaps", "yes or no"), ("2", "yes or no")],
    "LOG_FORMAT": [("xml", "json or console")],
    "LOG_LEVEL": [("loud", "debug, info, warning or error"), ("", "debug")],
    "TENANT_SETTING": [(name, "with a dot") for name in ("tenant", "app.", "app.te nant", "app.x'; drop")],
    "BACKOFF_MAX": [("5", "must be at least FENCEPOST_BACKOFF, 15")],
}  # fmt: skip


@pytest.mark.parametrize(("name", "value", "told"), [(name, *case) for name, cases in WRONG.items() for case in cases])
def test_a_wrong_setting_is_named_with_what_would_be_right(set_up: Set, name: str, value: str, told: str) -> None:
    """One line for each, that begins with what was set."""
    set_up(**{name.lower(): value})
    (line,) = refusals()
    assert line.startswith(f"FENCEPOST_{name}={value}")
    assert told in line.removeprefix(f"FENCEPOST_{name}={value}")


def test_all_that_is_wrong_is_named_at_once(set_up: Set) -> None:
    """Not one after the other, one start at a time."""
    set_up(concurrency="0", lease="abc", queues="", log_level="loud", DATABASE_URL="postgresql://u:secret@[h/db")
    with pytest.raises(WrongSettings, match=r"^5 settings are wrong:\n") as caught:
        read()
    names = ["CONCURRENCY=0", "LEASE=abc", "QUEUES=", "LOG_LEVEL=loud", "DATABASE_URL"]
    assert all(any(line.split()[0].endswith(name) for line in caught.value.lines) for name in names)


def test_one_is_said_to_be_one(set_up: Set) -> None:
    """As style has it."""
    set_up(concurrency="0")
    with pytest.raises(WrongSettings, match=r"^1 setting is wrong:\n  FENCEPOST_CONCURRENCY=0 +must be at least 1$"):
        read()


def test_all_contradictions_are_named_at_once(set_up: Set) -> None:
    """They need all settings to be right in themselves, and come together then."""
    set_up(lease="6s", heartbeat="5s", backoff="10s", backoff_max="5s", tenant_setting="tenant")
    assert [line.split("=")[0] for line in refusals()] == [
        "FENCEPOST_HEARTBEAT",
        "FENCEPOST_BACKOFF_MAX",
        "FENCEPOST_TENANT_SETTING",
    ]


# ---- leases and heartbeats (protocol, rule 10)


@pytest.mark.parametrize(
    ("lease", "heartbeat"),
    [("60s", "15s"), ("6s", "1.5s"), ("3s", "0.6s"), ("1s", "0.2s"), ("10s", "2.9s"), ("1h", "20m")],
)
def test_what_bears_a_lost_beat_is_taken(set_up: Set, lease: str, heartbeat: str) -> None:
    """(n + 1) H + T + C + J + K <= L / (1 + rho), with n of at least 1."""
    set_up(lease=lease, heartbeat=heartbeat)
    settings = read()
    n = settings.beats_that_may_fail
    assert n >= 1
    needed = (n + 1) * settings.heartbeat + settings.heartbeat_limit + settings.margin
    assert needed <= settings.lease / (1 + CLOCK_DRIFT)
    assert settings.check_period < settings.margin


@pytest.mark.parametrize(
    ("lease", "heartbeat"),
    [("60s", "30s"), ("6s", "2.5s"), ("1s", "1s"), ("60s", "60s"), ("10s", "3s"), ("100ms", "15s"), ("1h", "1h")],
)
def test_what_does_not_bear_a_lost_beat_is_refused_with_what_would(set_up: Set, lease: str, heartbeat: str) -> None:
    """The answer is one that is then taken."""
    set_up(lease=lease, heartbeat=heartbeat)
    (line,) = refusals()
    most = line.split("must be at most ")[1].split(",")[0]
    assert float(most) > 0
    set_up(heartbeat=most)
    assert read().beats_that_may_fail >= 1


def test_the_defaults_bear_two_lost_beats() -> None:
    """As the protocol says of 60 and 15."""
    assert read().beats_that_may_fail == 2
    assert read().heartbeat_limit == 5
    assert read().margin == 2


# ---- the address, and its password

SECRET = "p@s s/%:#?"
ENCODED = "p%40s%20s%2F%25%3A%23%3F"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://user:{SECRET}@host/db",
        f"postgresql://user:{ENCODED}@[host/db",
        f"postgresql://user:{ENCODED}@host:port:5/db%",
        f"postgresql://user:{ENCODED}%zz@host/db",
        f"postgresql://user:{ENCODED}@host/db?nonsense=1",
        f"host=h password={ENCODED} nonsense",
        f"password='{ENCODED}",
        f"mysql://user:{ENCODED}@host/db",
    ],
)
def test_an_address_that_cannot_be_read_is_refused_without_its_password(set_up: Set, url: str) -> None:
    """C132: libpq's own message repeats what it could not read."""
    set_up(DATABASE_URL=url)
    with pytest.raises(WrongSettings) as caught:
        read()
    told = str(caught.value) + repr(caught.value) + repr(caught.value.__cause__) + repr(caught.value.__context__)
    assert "DATABASE_URL" in told
    assert "must be a libpq URI" in told
    for secret in (SECRET, ENCODED, "p@s", "p%40s"):
        assert secret not in told


def test_the_password_is_never_shown(set_up: Set) -> None:
    """C132: however the settings are printed."""
    set_up(DATABASE_URL=f"postgresql://user:{ENCODED}@host/db")
    settings = read()
    told = f"{settings} {settings!r} {settings.model_dump()} {settings.model_dump_json()}"
    assert ENCODED not in told
    assert SECRET not in told
    assert conninfo_to_dict(settings.conninfo("x"))["password"] == SECRET


def test_the_password_is_not_shown_where_something_else_is_wrong(set_up: Set) -> None:
    """Pydantic's own errors show what they were given."""
    set_up(DATABASE_URL=f"postgresql://user:{ENCODED}@host/db", lease="abc", concurrency="0")
    with pytest.raises(WrongSettings) as caught:
        read()
    error: BaseException | None = caught.value
    while error is not None:
        assert ENCODED not in f"{error} {error!r}"
        error = error.__cause__ or error.__context__


def test_ours_comes_before_the_common_variable(set_up: Set) -> None:
    """FENCEPOST_DATABASE_URL, else DATABASE_URL, else libpq's own variables."""
    assert "host" not in conninfo_to_dict(read().conninfo("x"))
    set_up(DATABASE_URL="postgresql://one/a")
    assert conninfo_to_dict(read().conninfo("x"))["host"] == "one"
    set_up(database_url="postgresql://two/b")
    assert conninfo_to_dict(read().conninfo("x"))["host"] == "two"


@pytest.mark.parametrize(("lease", "heartbeat", "seconds"), [("60s", "15s", "5"), ("12s", "3s", "4"), ("3s", "0.5s", "2")])
def test_a_silent_host_leaves_time_for_another_within_the_lease(set_up: Set, lease: str, heartbeat: str, seconds: str) -> None:
    """Two whole seconds are the least that libpq knows."""
    set_up(database_url="postgresql://one,two/a", lease=lease, heartbeat=heartbeat)
    assert conninfo_to_dict(read().conninfo("x"))["connect_timeout"] == seconds


def options_of(given: dict[str, Any]) -> list[str]:
    return [f"-c {option.strip()}" for option in given["options"].split("-c ") if option]


def test_what_the_user_says_of_the_connection_stays(set_up: Set) -> None:
    """We add only what was not said; several hosts, odd characters and options included."""
    set_up(DATABASE_URL="postgresql://u@one:1,two:2/my%20db?connect_timeout=9&keepalives_idle=77&options=-c%20geqo%3Doff")
    given = conninfo_to_dict(read().conninfo("fencepost w1", client_connection_check_interval="500"))
    assert (given["host"], given["port"], given["dbname"]) == ("one,two", "1,2", "my db")
    assert (given["connect_timeout"], given["keepalives_idle"]) == ("9", "77")
    assert {"-c client_connection_check_interval=500", "-c geqo=off"} <= set(options_of(given))
    assert (given["target_session_attrs"], given["application_name"]) == ("read-write", "fencepost w1")
    assert int(given["tcp_user_timeout"]) > 0


def test_the_options_of_libpqs_variable_are_kept(set_up: Set) -> None:
    """They would be lost where the connection string has some."""
    set_up(PGOPTIONS="-c geqo=off")
    assert {"-c jit=off", "-c geqo=off"} <= set(options_of(conninfo_to_dict(read().conninfo("x", jit="off"))))


def test_a_pooler_is_asked_for_no_options_and_what_listens_is_direct(set_up: Set) -> None:
    """It refuses them, libpq's own variable among them; a direct connection has them all the same."""
    set_up(DATABASE_URL="postgresql://pooler/a", PGOPTIONS="-c geqo=off", pooler="transaction")
    given = conninfo_to_dict(read().conninfo("x", jit="off"))
    assert (given["options"], given["host"], read().listens) == ("", "pooler", False)
    set_up(listen_url="postgresql://direct/a")
    listening = conninfo_to_dict(read().listen_conninfo("x listen"))
    assert (listening["host"], listening["application_name"], read().listens) == ("direct", "x listen", True)
    assert "-c geqo=off" in options_of(listening)


@pytest.mark.parametrize(
    ("variables", "right"),
    [
        ({"pooler": "session"}, "must be none or transaction"),
        ({"pooler": "transaction", "DATABASE_URL": "postgresql://h/a?options=-c%20geqo%3Doff"}, "a pooler takes none"),
        ({"listen_url": f"postgresql://u:{SECRET}@h/a"}, "must be a libpq URI"),
    ],
)
def test_what_is_wrong_about_poolers_is_told(set_up: Set, variables: dict[str, str], right: str) -> None:
    """And never a password."""
    set_up(**variables)
    with pytest.raises(WrongSettings) as caught:
        read()
    (line,) = caught.value.lines
    assert right in line
    assert SECRET not in line


# ---- names


def test_a_list_may_have_spaces_and_gaps(set_up: Set) -> None:
    """As people write lists."""
    set_up(queues="mail, default ,,*", handlers=" app.jobs ,other")
    assert (read().queues, read().handlers) == (("mail", "default", "*"), ("app.jobs", "other"))


def test_misspelt_names_are_told(set_up: Set) -> None:
    """They would do nothing, silently."""
    set_up(leese="5s", lease="60s", schema="x", HEARTBEAT_="1", PORT="tcp://10.0.0.1:80")
    assert unknown_names() == ["FENCEPOST_LEESE"]


def test_every_setting_is_known_and_described() -> None:
    """In a sentence or two, on a line: docs/settings.md and `fencepost run --help` are made of them."""
    told = [field.description or "" for field in Settings.model_fields.values()]
    assert [one for one in told if not re.fullmatch(r"[A-Z].{10,130}\.", one)] == []


def test_enqueuing_reads_only_what_it_needs(set_up: Set) -> None:
    """A process that only enqueues need not have a worker's settings right."""
    enqueue_settings.cache_clear()
    try:
        set_up(lease="nonsense", schema="jobs", tenant_setting="")
        assert (enqueue_settings().schema, enqueue_settings().tenant_setting) == ("jobs", "")
    finally:
        enqueue_settings.cache_clear()


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000", None), ("150000 100000", 2), ("50000 100000", 1), ("nonsense", None), ("10000000 100000", None)],
)
def test_the_number_of_workers_is_what_the_container_may_use(
    monkeypatch: pytest.MonkeyPatch, quota: str, cores: int | None
) -> None:
    """The quota, rounded up, and no more than the processors it may run on."""
    real = builtins.open

    def fake(file: Any, *arguments: Any, **options: Any) -> Any:
        return io.StringIO(quota) if file == "/sys/fs/cgroup/cpu.max" else real(file, *arguments, **options)

    monkeypatch.setattr("builtins.open", fake)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    assert read().concurrency == (cores or 4)
