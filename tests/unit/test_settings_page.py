"""What the docs and the command line say of the settings is what the settings are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import pytest
from click.testing import CliRunner
from pydantic import Field

from fencepost.cli import cli, settings_page
from fencepost.cli.settings_page import Entry, duration, entries
from fencepost.settings import LIST, PREFIX, Count, Default, Names, Seconds, Settings, WrongSettings, form_of, read

TOP = Path(__file__).parents[2]

CURE = "run `make docs`"


def test_the_docs_and_the_help_tell_of_the_settings_as_they_are() -> None:
    """Who adds, renames or changes a setting runs `make docs`."""
    assert (TOP / "docs" / "settings.md").read_text(encoding="utf-8") == settings_page.page(), CURE
    readme = (TOP / "README.md").read_text(encoding="utf-8")
    assert settings_page.in_readme(readme) == readme, CURE
    assert readme.count(f"| `{PREFIX}") == len(settings_page.FIRST_NEEDED)
    told = " ".join(CliRunner().invoke(cli, ["run", "--help"]).output.split())
    for one in entries().values():
        assert f"{one.variable} {one.meaning} [default: {one.default}]".replace("`", "") in told


class More(Settings):
    """Settings that someone has added."""

    eager: bool = Field(False, description="A switch.")
    size: int | None = Field(None, ge=1, description="Perhaps a number.")
    pause: Seconds = Field(0.25, le=90, gt=0, description="A | b.")
    names: Names = Field(("a", "b"), description="Some.")
    pages: Annotated[Count, Default("enough")] = Field(0, description="Not one value.")


def test_a_setting_that_is_added_is_told_of_without_more_ado() -> None:
    """From its type, default, limits and description alone."""
    added = {name: one for name, one in entries(More).items() if name not in Settings.model_fields}
    assert added == {
        "eager": Entry("FENCEPOST_EAGER", "no", "A switch.", "yes or no"),
        "size": Entry("FENCEPOST_SIZE", "none", "Perhaps a number.", "at least 1"),
        "pause": Entry("FENCEPOST_PAUSE", "250ms", "A | b.", "a duration, more than 0, at most 90"),
        "names": Entry("FENCEPOST_NAMES", "`a,b`", "Some.", "a list, separated by commas"),
        "pages": Entry("FENCEPOST_PAGES", "enough", "Not one value.", "a whole number"),
    }


@pytest.mark.parametrize("changed", ["variable", "default", "meaning", "limits"])
def test_whatever_changes_of_a_setting_changes_the_page(monkeypatch: pytest.MonkeyPatch, changed: str) -> None:
    """So that the comparison with what is kept can fail."""
    before = settings_page.page()
    known = entries()
    one = known["lease"]
    other = Entry(**{name: getattr(one, name) + ("x" if name == changed else "") for name in Entry.__slots__})
    monkeypatch.setattr(settings_page, "entries", lambda: {**known, "lease": other})
    assert settings_page.page() != before


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(0, "0s"), (0.25, "250ms"), (1.5, "1.5s"), (60, "60s"), (90, "90s"), (300, "5m"), (3600, "1h"), (604_800, "7d")],
)
def test_a_duration_is_told_as_it_may_be_set(monkeypatch: pytest.MonkeyPatch, seconds: float, written: str) -> None:
    """And means the same."""
    assert duration(seconds) == written
    monkeypatch.setenv("FENCEPOST_BACKOFF", written)
    monkeypatch.setenv("FENCEPOST_BACKOFF_MAX", "30d")
    assert read().backoff == seconds


def wrong(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> str:
    """Return what is said of a setting that is set so."""
    with monkeypatch.context() as patch:
        patch.setenv(entries()[name].variable, value)
        with pytest.raises(WrongSettings) as caught:
            read()
    (line,) = caught.value.lines
    return "must " + line.partition(" must ")[2]


def values_beyond(field: Any) -> dict[str, str]:
    """Return values that break the limits of a setting, each with what the page says of that limit."""
    beyond = {}
    for limits in field.metadata:
        for name, words, step in (("ge", "at least", -1), ("gt", "more than", 0), ("le", "at most", 1)):
            limit = getattr(limits, name, None)
            # A duration has no sign, and so a negative one is none.
            if limit is not None and limit + step >= 0:
                beyond[str(limit + step)] = f"{words} {limit}"
    return beyond


@pytest.mark.parametrize("name", Settings.model_fields)
def test_the_page_and_the_error_for_a_wrong_value_say_the_same(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Of what a value must be, and of its limits."""
    field, limits = Settings.model_fields[name], entries()[name].limits
    form = form_of(field)
    if form is not None and form != LIST:
        assert form.what in limits
        nonsense = "postgresql://[5 %" if name == "database_url" else "5 %"
        assert wrong(monkeypatch, name, nonsense).startswith(f"must be {form.what}")
    for value, words in values_beyond(field).items():
        assert re.search(rf"\b{words}\b", limits)
        assert wrong(monkeypatch, name, value).startswith(f"must be {words}")
    if "not empty" in limits:
        assert wrong(monkeypatch, name, "").endswith("must not be empty")
