"""What is seen while the demo runs, and the summary at its end.

On a terminal a table is drawn over and over, and what happens scrolls above it; anywhere else only what happens is
told, a line each.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fencepost.demo.facts import TENANTS, Count, Verdict, right_count
from fencepost.demo.supervisors import WORKERS, Worker

AT_EACH_END = 3
"""As many tenants are shown at the start and at the end of their table."""


@dataclass(frozen=True, slots=True)
class View:
    """One moment. `bad` is what each bad job is called, and what is happening to it."""

    counted: int
    pid: int
    age: float
    died: int
    workers: Sequence[Worker]
    bad: Sequence[tuple[str, str]]


class Screen:
    """Where the demo tells what happens."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._began = time.monotonic()
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._live is not None:
            self._live.stop()

    @property
    def seconds(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._began

    def tell(self, text: str) -> None:
        """Tell of something that has happened."""
        when = f"{self.seconds:5.1f} s"
        if self._live is None:
            self.console.print(f"{when}  {text}", soft_wrap=True)
        else:
            line = Table.grid(padding=(0, 2, 0, 0))
            line.add_row(Text(when, style="dim", no_wrap=True), Text(text))
            self.console.print(line)

    def show(self, view: View) -> None:
        """Draw the moment, if this is a terminal."""
        if self._live is not None:
            self._live.update(drawn(view), refresh=True)


def drawn(view: View) -> RenderableType:
    """Return the live table."""
    state = Table.grid(padding=(0, 2, 0, 0))
    bar = Table.grid(padding=(0, 2, 0, 0))
    bar.add_row(ProgressBar(total=TENANTS, completed=view.counted, width=32), f"{view.counted} of {TENANTS}")
    state.add_row("tenants counted", bar)
    died = f"{view.died} of its workers died, each was replaced" if view.died else "none of its workers has died yet"
    state.add_row("supervisor", f"pid {view.pid} for {view.age:.0f} s; {died}")
    slots = _table("slot", "pid", "worker runs")
    in_slot = {worker.slot: worker for worker in view.workers}
    for slot in range(1, WORKERS + 1):
        worker = in_slot.get(slot)
        if worker is None:
            slots.add_row(str(slot), "", Text("a new worker is forked", style="dim"))
        else:
            style = "red" if worker.runs.startswith("bad.") else "" if "#" in worker.runs else "dim"
            slots.add_row(str(slot), str(worker.pid), Text(worker.runs, style=style))
    bad = _table("bad job", "what happens to it")
    for name, now in view.bad:
        bad.add_row(name, Text(now))
    return Group(Text(), state, Text(), slots, Text(), bad)


def summary(counts: Sequence[Count], verdicts: Sequence[Verdict]) -> RenderableType:
    """Return what a person wants to know at the end."""
    return Group(Text(), _tenants(counts), Text(), _promises(verdicts), Text())


def conclusion(seconds: float) -> Text:
    """Return the last line, where all is as promised and cleared away."""
    return Text(f"Everything as promised, in {seconds:.0f} s. Nothing is left behind.", style="bold green")


def _tenants(counts: Sequence[Count]) -> RenderableType:
    table = _table("tenant", "has invoices", "counted", "")
    for column in table.columns[:3]:
        column.justify = "right"
    wrong = [count for count in counts[AT_EACH_END:-AT_EACH_END] if not count.is_right]
    for count in counts[:AT_EACH_END]:
        _add(table, count)
    for count in wrong:
        _add(table, count)
    others = len(counts) - 2 * AT_EACH_END - len(wrong)
    table.add_row("…", "…", "…", Text(f"{others} more, all right", style="dim"))
    for count in counts[-AT_EACH_END:]:
        _add(table, count)
    return table


def _add(table: Table, count: Count) -> None:
    counted = "none" if count.invoices is None else f"{count.invoices:,}"
    mark = Text("right", style="green") if count.is_right else Text(f"wrong ({count.status})", style="bold red")
    table.add_row(str(count.tenant), f"{right_count(count.tenant):,}", counted, mark)


def _promises(verdicts: Sequence[Verdict]) -> RenderableType:
    table = _table("", "promised", "seen", "took")
    table.columns[0].no_wrap = table.columns[3].no_wrap = True
    table.columns[1].max_width = 22
    table.columns[3].justify = "right"
    for verdict in verdicts:
        style = "green" if verdict.kept else "bold red"
        took = "" if verdict.took is None else f"{verdict.took:.1f} s"
        name = Text(verdict.what, style="bold")
        table.add_row(name, Text(verdict.promised), Text(verdict.seen, style=style), took)
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column)
    return table
