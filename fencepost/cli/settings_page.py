"""The settings as people read them: `docs/settings.md`, the README's table and `fencepost run --help`.

All three are made from `Settings`, so that a setting is described once, where it is defined.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from fencepost.settings import BOUNDS, DURATION, LONGEST, Default, Settings, bound, form_of, longest_heartbeat, variable

FIRST_NEEDED = ("database_url", "handlers", "concurrency", "queues", "max_runtime", "drain_timeout", "tenant_setting")
"""What the README shows: whoever tries Fencepost needs no other."""

README_TABLE = re.compile(r"(?<=<!-- settings: by `make docs` -->\n).*?(?=<!-- settings end -->)", re.DOTALL)

PAGE = """\
# Settings

<!-- Made by `make docs` from fencepost/settings.py: change it there. -->

Environment variables set Fencepost up. They are read once, when a process starts. `fencepost run --help` lists them too, and
`fencepost check` says what is wrong with them before a start does.

- A duration says its unit, `500ms`, `30s`, `5m`, `1h` or `7d`; a bare number is seconds. {longest} is the longest.
- A size says its unit, `500K`, `500M` or `2G`; a bare number is bytes.
- A list is separated by commas: `mail,default`.
- `yes` and `no` may also be `true` and `false`, `on` and `off`, `1` and `0`.
- A variable that is set to nothing is empty, and not at its default.
- Everything that is wrong is named at once, with what would be right, and the exit code is 78. A variable that begins with
  `FENCEPOST_` and is no setting is only warned of: it may be misspelt.
- `fencepost run` and `fencepost check` need `FENCEPOST_HANDLERS`. A program that only enqueues needs no more than
  `FENCEPOST_SCHEMA` and `FENCEPOST_TENANT_SETTING`, where they are not at their defaults.

Some settings are right by themselves and wrong together, and are refused:

- `FENCEPOST_HEARTBEAT`, where a lease would not outlast one that fails. It may be at most
  {heartbeats}.
- `FENCEPOST_BACKOFF_MAX`, where it is less than `FENCEPOST_BACKOFF`.
- `FENCEPOST_POOLER=transaction`, where `FENCEPOST_DATABASE_URL` has `options`, which no pooler takes.

One thing can't be seen from here: a container's grace period must be more than `FENCEPOST_DRAIN_TIMEOUT` +
`FENCEPOST_KILL_GRACE` + 2s.

{table}
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A setting in words, which are Markdown."""

    variable: str
    default: str
    meaning: str
    limits: str


def entries(settings: type[Settings] = Settings) -> dict[str, Entry]:
    """Return all settings in words, by their names in `settings`."""
    return {
        name: Entry(variable(name), _default(field), field.description or "", _limits(field))
        for name, field in settings.model_fields.items()
    }


def page() -> str:
    """Return `docs/settings.md`."""
    heartbeats = [
        f"{longest_heartbeat(Settings.model_construct(lease=lease)):g}s for a lease of {duration(lease)}"
        for lease in (60.0, 20.0, 6.0)
    ]
    return PAGE.format(
        longest=duration(LONGEST),
        heartbeats=", ".join(heartbeats),
        table=_table(
            ["variable", "default", "what it does", "limits"],
            [[f"`{one.variable}`", one.default, one.meaning, one.limits] for one in entries().values()],
        ),
    )


def in_readme(text: str) -> str:
    """Return the README `text` with the settings that are needed first between its marks."""
    known = entries()
    rows = [[f"`{one.variable}`", one.default, one.meaning] for one in (known[name] for name in FIRST_NEEDED)]
    table = _table(["variable", "default", "what it does"], rows)
    return README_TABLE.sub(lambda _: f"\n{table}\n\n", text)


def for_help() -> list[tuple[str, str]]:
    """Return all settings as plain text: variable, and what it does with its default."""
    return [(one.variable, f"{one.meaning}  [default: {one.default}]".replace("`", "")) for one in entries().values()]


def duration(seconds: float) -> str:
    """Return a duration as users write it."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds > 60 and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:g}s" if seconds >= 1 or not seconds else f"{seconds * 1000:g}ms"


def _default(field: FieldInfo) -> str:
    in_words = next((default.words for default in field.metadata if isinstance(default, Default)), None)
    return in_words or _value(field.default, is_duration=DURATION in field.metadata)


def _value(value: Any, *, is_duration: bool) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int() | float() if is_duration:
            return duration(value)
        case SecretStr():
            return _value(value.get_secret_value(), is_duration=False)
        case tuple():
            return _value(",".join(value), is_duration=False)
        case None | "":
            return "none"
        case _:
            return f"`{value}`" if isinstance(value, str) else str(value)


def _limits(field: FieldInfo) -> str:
    form = form_of(field)
    bounds = [(kind, getattr(known, kind, None)) for kind in BOUNDS for known in field.metadata]
    said = [form.what] if form is not None else []
    said += [bound(kind, limit) for kind, limit in bounds if limit is not None]
    said += ["not empty" for known in field.metadata if getattr(known, "min_length", None)]
    return ", ".join(said)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
