"""What a part tells, and how numbers are written."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """One paragraph and one table: what the article found, what was found here, what Fencepost does."""

    article: str
    here: str
    fencepost: str
    head: list[str]
    rows: list[list[str]]

    def text(self) -> str:
        """Return it as Markdown."""
        article = f"**The article:** {self.article} " if self.article else ""
        paragraph = f"{article}**Here:** {self.here} **Fencepost** {self.fencepost}"
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        return wrapped(paragraph) + "\n\n" + "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def wrapped(paragraph: str) -> str:
    """Return it in lines as long as this project's are."""
    return textwrap.fill(paragraph, 128, break_long_words=False, break_on_hyphens=False)


def number(value: float) -> str:
    """Write a count as people do: 20,000."""
    return f"{value:,.0f}"


def ms(value: float) -> str:
    """Write milliseconds, to what can be told apart."""
    return f"{value:.2f} ms" if value < 10 else f"{value:.0f} ms"


def seconds(value: float) -> str:
    """Write seconds."""
    return f"{value:.1f} s"


def times(runs: int) -> str:
    """Write how often something ran."""
    return f"{runs} run{'' if runs == 1 else 's'}"


def one_line(words: str) -> str:
    """Write what a program said, in a cell."""
    return " ".join(words.split()).replace("|", "/")
