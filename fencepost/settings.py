"""The only reader of the environment.

Every setting is an environment variable, `FENCEPOST_` and the name here in capitals. All wrong ones are named at once, each
with what would be right, and values are never echoed where they may hold a password.

Durations are seconds inside; outside, a bare number is seconds and `500ms`, `30s`, `5m`, `1h`, `7d` say their unit.
"""

from __future__ import annotations

import math
import os
import re
import sys
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

PREFIX = "FENCEPOST_"

CLOCK_DRIFT = 0.001
"""How much faster one clock may tick than another (protocol, rule 10)."""

NAME_BYTES = 63
"""Bytes of a name in PostgreSQL, longer ones are cut."""

MOST_WORKERS = 1000

LONGEST = 36_500 * 86_400.0
"""Seconds: a hundred years. Beyond, neither Python's dates nor the server's go on."""

BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most"}

NARROWEST, WIDEST = 26, 60
"""Columns that what is wrong takes, before what would be right; a longer one pushes aside its own line only."""

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class Form:
    """What a value must be. The settings page says it beforehand, and the error for a value that is not so says the same."""

    what: str
    example: str = ""

    @property
    def must(self) -> str:
        """What is said of a value that is not so."""
        return f"must be {self.what}" + (f", such as {self.example}" if self.example else "")


URI = Form("a libpq URI with special characters as %XX", "postgresql://user@host/database")
DURATION = Form("a duration", "30s")
SIZE = Form("a size", "500M")
WHOLE_NUMBER = Form("a whole number")
LIST = Form("a list, separated by commas")
YES_OR_NO = Form("yes or no")
SCHEMA = Form(f"a name of 1 to {NAME_BYTES} bytes, without %")
TENANT_SETTING = Form("empty, or the name of a setting with a dot", "app.tenant")


def _seconds(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\s*", value)
    if match is None:
        raise ValueError(DURATION.must)
    seconds = float(match[1]) * _UNITS[match[2] or "s"]
    if seconds > LONGEST:
        raise ValueError(f"must be at most {LONGEST / _UNITS['d']:g}d")
    return seconds


def _bytes(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not value.strip():
        return 0
    match = re.fullmatch(r"(?i)\s*(\d+(?:\.\d+)?)\s*(k|m|g|t)?(?:i?b)?\s*", value)
    if match is None:
        raise ValueError(SIZE.must)
    return int(float(match[1]) * 1024 ** " kmgt".index((match[2] or " ").lower()))


def _names(value: Any) -> Any:
    return tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else value


def _whole_number(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(r"\s*-?\d+\s*", value):
        raise ValueError(WHOLE_NUMBER.must)
    return value


def _schema(name: str) -> str:
    # A longer one PostgreSQL would cut, and the driver takes a % for a parameter.
    if not 1 <= len(name.encode()) <= NAME_BYTES or "%" in name:
        raise ValueError(SCHEMA.must)
    return name


def _cores() -> int:
    """Return how many cores this container may use: its CPU quota, rounded up, or the processors it may run on."""
    available = len(os.sched_getaffinity(0))
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
        if quota != "max":
            return max(1, min(available, -(-int(quota) // int(period))))
    except (OSError, ValueError):
        pass
    return available


@dataclass(frozen=True, slots=True)
class Default:
    """What the default is, in words: for a setting whose default is not one value."""

    words: str


Seconds = Annotated[float, BeforeValidator(_seconds), DURATION]
Bytes = Annotated[int, BeforeValidator(_bytes), SIZE]
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_names), LIST]
Count = Annotated[int, BeforeValidator(_whole_number), WHOLE_NUMBER]


@dataclass(frozen=True, slots=True)
class WrongSetting:
    """A variable as it is set, or its name alone where it may hold a password; and what would be right."""

    what: str
    right: str


class WrongSettings(Exception):
    """What is wrong with the settings: one line for each, with what would be right."""

    def __init__(self, wrong: list[WrongSetting]) -> None:
        self.wrong = wrong
        width = max([NARROWEST, *(len(one.what) for one in wrong if len(one.what) <= WIDEST)])
        self.lines = [f"{one.what:<{width}} {one.right}" for one in wrong]
        count = f"{len(wrong)} settings are wrong" if len(wrong) > 1 else "1 setting is wrong"
        super().__init__("\n".join([f"{count}:", *(f"  {line}" for line in self.lines)]))


class Settings(BaseSettings):
    """All settings, checked. Frozen: read once, at the start of a process."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore", env_ignore_empty=False)

    database_url: Annotated[SecretStr, URI] = Field(
        SecretStr(""),
        validation_alias=AliasChoices("FENCEPOST_DATABASE_URL", "DATABASE_URL"),
        description="Where the jobs are: any libpq URI. Without it DATABASE_URL counts, then libpq's own PGHOST and so on.",
    )
    handlers: Names = Field(
        (), description="Modules that register your handlers, as you import them. The working directory is searched too."
    )
    concurrency: Annotated[Count, Default("the cores this container may use")] = Field(
        default_factory=_cores,
        ge=1,
        le=MOST_WORKERS,
        description="Number of workers, each a process that runs one job at a time. Raise it for jobs that mostly wait.",
    )
    queues: Names = Field(
        ("default",), min_length=1, description="Queues to take jobs from, in order of preference. `*` stands for all."
    )
    lease: Seconds = Field(
        60.0,
        gt=0,
        description="How long a claim holds without a heartbeat. Lower it to have a lost machine's jobs back sooner.",
    )
    heartbeat: Seconds = Field(
        15.0, gt=0, description="How often leases are prolonged. Change it together with FENCEPOST_LEASE."
    )
    max_runtime: Seconds = Field(
        300.0,
        gt=0,
        description="When a run is stopped, unless its handler or job says otherwise. Raise it if most jobs take longer.",
    )
    kill_grace: Seconds = Field(
        1.0, ge=0, description="From asking a run to stop to killing it. Raise it for jobs that take long to tidy up."
    )
    poll: Seconds = Field(
        1.0, gt=0, description="How often to look for work that no notification told of. Raise it to ask an idle database less."
    )
    sweep: Seconds = Field(
        1.0, gt=0, description="How often to look for expired leases. Raise it to ask an idle database less."
    )
    drain_timeout: Seconds = Field(
        25.0, ge=0, description="How long running jobs may go on after TERM. Fit it to the grace period of your containers."
    )
    boot_timeout: Seconds = Field(
        60.0, gt=0, description="How long a worker may take to be ready. Raise it if your handlers import slowly."
    )
    max_attempts: Count = Field(
        5, ge=1, le=2**31 - 1, description="How many counted runs a job gets, unless its handler or the job says otherwise."
    )
    backoff: Seconds = Field(
        15.0, ge=0, description="First wait between attempts. It doubles each time, with up to this much more at random."
    )
    backoff_max: Seconds = Field(
        3600.0, ge=0, description="Where the wait between attempts stops doubling. Lower it if late attempts are of no use."
    )
    max_jobs_per_worker: Annotated[Count, Default("0 (no limit)")] = Field(
        0, ge=0, description="Jobs after which a worker is replaced. Set it for handlers or libraries that leak."
    )
    max_rss: Annotated[Bytes, Default("0 (no limit)")] = Field(
        0,
        ge=0,
        description="Memory that a worker may take for itself. Above it a run is killed, above 3/4 its worker is replaced.",
    )
    preload: bool = Field(
        False,
        description="Import the handlers before the forks, so that all workers share that memory. HUP then keeps them.",
    )
    schema_: Annotated[str, AfterValidator(_schema), SCHEMA] = Field(
        "fencepost",
        alias="FENCEPOST_SCHEMA",
        description="Schema of Fencepost's tables. Change it if the name is taken, or for a second queue in the database.",
    )
    tenant_setting: Annotated[str, TENANT_SETTING] = Field(
        "app.tenant", description="What your policies read the tenant from; set in a job's transactions. Empty: no tenants."
    )
    job_role: str = Field(
        "", description="Role that a job's transactions take on. Set it if jobs must have other rights than the login."
    )
    allow_bypassrls: bool = Field(
        False, description="Start although the login bypasses row-level security. Only if tenants are kept apart otherwise."
    )
    pooler: Annotated[str, Form("none or transaction")] = Field(
        "none",
        pattern="^(none|transaction)$",
        description="Set it to transaction where FENCEPOST_DATABASE_URL leads to a pooler that pools transactions.",
    )
    listen_url: Annotated[SecretStr, URI] = Field(
        SecretStr(""),
        description="Where to listen for new jobs: a direct way, beside a pooler. Without it they wait for a poll there.",
    )
    retention: Annotated[Seconds, Default("7d (0: kept for ever)")] = Field(
        7 * 86_400.0,
        ge=0,
        description="How long a job is kept that is done or cancelled. Dead ones stay. Lower it if the table grows too large.",
    )
    log_format: Annotated[str, Form("json or console"), Default("json; console on a terminal")] = Field(
        "", pattern="^(json|console)?$", description="A JSON object a line, for machines, or coloured lines, for people."
    )
    log_level: Annotated[str, Form("debug, info, warning or error")] = Field(
        "info", pattern="(?i)^(debug|info|warning|error)$", description="The least that is logged; debug tells of every run."
    )

    @property
    def schema(self) -> str:  # type: ignore[override]  # pydantic's own method of that name went with its first version
        """Schema of the tables."""
        return self.schema_

    @property
    def pooled(self) -> bool:
        """Whether a session may be somebody else's after each transaction."""
        return self.pooler == "transaction"

    @property
    def listens(self) -> bool:
        """Whether notifications are listened for: through a pooler they don't come."""
        return not self.pooled or bool(self.listen_url.get_secret_value())

    @property
    def heartbeat_limit(self) -> float:
        """Time limit of a heartbeat in all, in seconds (protocol, rule 10: T)."""
        return min(5.0, self.heartbeat * 2 / 3)

    @property
    def margin(self) -> float:
        """Seconds from deciding to kill a run to all of it being stopped, at worst (protocol, rule 10: C + J + K)."""
        return min(2.0, self.lease / 5)

    @property
    def check_period(self) -> float:
        """How often deadlines are looked at, in seconds (protocol, rule 10: C)."""
        return min(0.1, self.margin / 8)

    @property
    def holds_for(self) -> float:
        """Seconds from sending a claim or an answered heartbeat to when its run must be killed (protocol, rule 10: D - m)."""
        return self.lease / (1 + CLOCK_DRIFT) - self.margin

    @property
    def beats_that_may_fail(self) -> int:
        """How many heartbeats may fail in a row (protocol, rule 10: n). Fewer than one is refused."""
        return int((self.holds_for - self.heartbeat_limit) / self.heartbeat) - 1

    def conninfo(self, application_name: str, **options: str) -> str:
        """Return the connection string, with what we need where the user said nothing, and server `options` set.

        A vanished server is noticed by keepalives and by unacknowledged data; a server that only reads is passed over. A pooler
        takes no options: there each transaction says for itself what it depends on.
        """
        return self._conninfo(self.database_url, application_name, None if self.pooled else options)

    def listen_conninfo(self, application_name: str) -> str:
        """Return the connection string for what listens; as `conninfo`, and never through a pooler."""
        return self._conninfo(
            self.listen_url if self.listen_url.get_secret_value() else self.database_url, application_name, {}
        )

    def _conninfo(self, url: SecretStr, application_name: str, options: dict[str, str] | None) -> str:
        given = conninfo_to_dict(url.get_secret_value())
        defaults: dict[str, Any] = {
            # A third of the lease, in whole seconds, of which libpq takes no fewer than 2: behind a silent host there must be
            # time for another.
            "connect_timeout": os.environ.get("PGCONNECT_TIMEOUT", str(max(2, min(5, int(self.lease / 3))))),
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": int(max(self.heartbeat_limit, 5.0) * 1000),
            "target_session_attrs": os.environ.get("PGTARGETSESSIONATTRS", "read-write"),
        }
        if options is None:
            # A pooler refuses them. Empty, or libpq would read PGOPTIONS.
            given["options"] = ""
        else:
            # Behind the user's: the last of two counts.
            ours = " ".join(f"-c {name}={value}" for name, value in {**self._always(), **options}.items())
            given["options"] = f"{given.get('options') or os.environ.get('PGOPTIONS', '')} {ours}".strip()
        ours_always = {"application_name": application_name, "client_encoding": "UTF8"}
        return make_conninfo("", **{**defaults, **given, **ours_always})

    @staticmethod
    def _always() -> dict[str, str]:
        # What a role or a database sets by default must not change what our statements mean, nor keep us from reading their
        # answers: under a stricter isolation they would fail as soon as another has touched the row (protocol, rule 1).
        return {
            "default_transaction_isolation": r"read\ committed",
            "datestyle": "ISO",
            "intervalstyle": "postgres",
            # The server must notice in its turn that our machine has vanished: until then it keeps what a job had locked.
            "tcp_keepalives_idle": "5",
            "tcp_keepalives_interval": "1",
            "tcp_keepalives_count": "3",
            # By this `proxied` finds out whether the session keeps any of them.
            "fencepost_job.session": "ours",
        }


@dataclass(frozen=True, slots=True)
class EnqueueSettings:
    """The two settings that enqueuing needs: a process that only enqueues need not have the others right."""

    schema: str
    tenant_setting: str


@cache
def enqueue_settings() -> EnqueueSettings:
    """Return what enqueuing needs, read once."""
    return EnqueueSettings(
        schema=os.environ.get("FENCEPOST_SCHEMA") or "fencepost",
        tenant_setting=os.environ.get("FENCEPOST_TENANT_SETTING", "app.tenant"),
    )


def read(*, need_handlers: bool = False) -> Settings:
    """Read the settings from the environment. Raises WrongSettings, naming all that is wrong.

    `need_handlers` refuses an empty FENCEPOST_HANDLERS too: only a supervisor needs some.
    """
    wrong: list[WrongSetting] = []
    settings: Settings | None = None
    try:
        settings = Settings()  # type: ignore[call-arg]
    except ValidationError as error:
        wrong = [_wrong(one["loc"], one["type"], one["msg"], one.get("ctx", {})) for one in error.errors()]
    wrong += _unreadable_urls()
    if need_handlers and not _names(os.environ.get("FENCEPOST_HANDLERS", "")):
        wrong.append(WrongSetting("FENCEPOST_HANDLERS=", "must name the modules that register handlers, comma separated"))
    if settings is not None:
        wrong += _contradictions(settings)
    if wrong or settings is None:
        raise WrongSettings(wrong)
    return settings


def unknown_names() -> list[str]:
    """Return variables that look like settings and are none, such as misspelt ones.

    They are warned of, not refused: Kubernetes sets FENCEPOST_PORT and the like by itself for a service called fencepost.
    """
    known = {variable(name) for name in Settings.model_fields}
    return sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)


def use_working_directory() -> None:
    """Let modules be found in the working directory, as `python -m` would."""
    try:
        here = os.getcwd()
    except FileNotFoundError:
        return  # someone has taken it away: nothing is found there, and handlers may be elsewhere
    if not {"", here} & set(sys.path):
        sys.path.insert(0, here)


def variable(name: str) -> str:
    """Return the environment variable of the setting that is called `name` here."""
    return f"{PREFIX}{name.rstrip('_').upper()}"


def form_of(field: FieldInfo) -> Form | None:
    """Return what a value of a setting must be, if it may not be any text."""
    of_type = YES_OR_NO if field.annotation is bool else None
    return next((form for form in field.metadata if isinstance(form, Form)), of_type)


def bound(kind: str, limit: float) -> str:
    """Return a limit as words. Its kind is one of pydantic's: ge, gt or le."""
    return f"{BOUNDS[kind]} {int(limit) if limit == int(limit) else limit}"


def longest_heartbeat(settings: Settings) -> float:
    """Return the longest FENCEPOST_HEARTBEAT, in seconds, of which one may fail in a lease (protocol, rule 10).

    (n + 1) H + T <= D - m, with n = 1, and T either five seconds or two thirds of H; rounded down.
    """
    most = max((settings.holds_for - 5.0) / 2, min(7.5, settings.holds_for / (2 + 2 / 3)))
    return math.floor(most * 1000) / 1000


def _wrong(loc: tuple[int | str, ...], kind: str, message: str, context: dict[str, Any]) -> WrongSetting:
    name = str(loc[0]) if loc else ""
    named = name if name.startswith(PREFIX) else variable(name)
    match kind:
        case "greater_than_equal" | "greater_than" | "less_than_equal":
            (limit,) = context.items()
            right = f"must be {bound(*limit)}"
        case "too_short" | "string_too_short":
            right = "must not be empty"
        case "bool_parsing" | "bool_type":
            right = YES_OR_NO.must
        case "string_pattern_mismatch" if (form := form_of(Settings.model_fields[name])) is not None:
            right = form.must
        case _:
            right = message.removeprefix("Value error, ")
    return WrongSetting(f"{named}={os.environ.get(named, '')}", right)


def _unreadable_urls() -> list[WrongSetting]:
    of_jobs = "FENCEPOST_DATABASE_URL" if "FENCEPOST_DATABASE_URL" in os.environ else "DATABASE_URL"
    return [*_unreadable_url(of_jobs), *_unreadable_url("FENCEPOST_LISTEN_URL")]


def _unreadable_url(named: str) -> list[WrongSetting]:
    try:
        host = conninfo_to_dict(os.environ.get(named, "")).get("host")
    except psycopg.Error:
        # libpq's own message repeats parts of the text, among which may be the password.
        return [WrongSetting(named, URI.must)]
    # A password with an unescaped @ ends at it, and its rest would be a host that libpq names in each of its errors.
    return [WrongSetting(named, URI.must)] if "@" in str(host or "") else []


def _asks_for_options(url: SecretStr) -> bool:
    try:
        return bool(conninfo_to_dict(url.get_secret_value()).get("options"))
    except psycopg.Error:
        return False  # it can't be read, which is said


def _contradictions(settings: Settings) -> list[WrongSetting]:
    wrong = []
    if settings.beats_that_may_fail < 1:
        right = f"must be at most {longest_heartbeat(settings):g}, so that one may fail in a lease of {settings.lease:g} s"
        wrong.append(WrongSetting(f"FENCEPOST_HEARTBEAT={settings.heartbeat:g}", right))
    if settings.backoff_max < settings.backoff:
        right = f"must be at least FENCEPOST_BACKOFF, {settings.backoff:g}"
        wrong.append(WrongSetting(f"FENCEPOST_BACKOFF_MAX={settings.backoff_max:g}", right))
    if settings.pooled and _asks_for_options(settings.database_url):
        right = "must be none where FENCEPOST_DATABASE_URL has options: a pooler takes none"
        wrong.append(WrongSetting(f"FENCEPOST_POOLER={settings.pooler}", right))
    if settings.tenant_setting and not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", settings.tenant_setting):
        wrong.append(WrongSetting(f"FENCEPOST_TENANT_SETTING={settings.tenant_setting}", TENANT_SETTING.must))
    return wrong
