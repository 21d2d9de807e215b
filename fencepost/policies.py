"""Read in a policy what becomes of the tenant: whether it can be an error instead of no row.

A local setting reads as '' once its transaction has ended, and in a job without a tenant: `current_setting('app.tenant',
true)::int` fails there, as a query is planned or run, in whichever job comes next. With `nullif(current_setting('app.tenant',
true), '')` it is null, and null is no row. Where it was never set it is not there at all: a policy that does not say `true` may
want the error that this is, and is not judged for it.

The text is the server's (pg_get_expr), so a cast is always `(…)::type`. Judged is only what is plain there: what a function
of yours does with the setting is its own affair.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

TOKEN = re.compile(
    r"""
    (?P<space>\s+)
    | (?P<string>E?'(?:[^'\\]|''|\\.)*')
    | (?P<word>"(?:[^"]|"")+"|[^\W\d][\w$]*)
    | (?P<other>::|.)
    """,
    re.VERBOSE | re.DOTALL,
)

HANDS_ON = {"COALESCE", "NULLIF", "TRIM", "btrim", "ltrim", "rtrim", "lower", "upper"}
"""Functions that make '' of ''."""

PLAIN_BEFORE_A_PARENTHESIS = {"AND", "OR", "NOT", "CASE", "WHEN", "THEN", "ELSE", "WHERE", "ON", "IN", "SELECT", "FROM"}
"""Words after which a parenthesis is no list of arguments."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A place where an expression reads the setting.

    `cast_to` is a type that '' is no value of, None if it is cast to none. `guarded`: a CASE has looked at the setting before
    it comes to this. `nullif`: '' is null already.
    """

    start: int
    end: int
    literal: str
    cast_to: str | None
    guarded: bool
    nullif: bool
    missing_ok: bool


def readings(expression: str, setting: str, text_types: Collection[str]) -> list[Reading]:
    """Return where `expression` reads `setting` by `current_setting`. A cast to one of `text_types` takes any text."""
    text = _Text(expression)
    return list(text.readings(setting, text_types))


def mended(expression: str, setting: str, text_types: Collection[str]) -> str:
    """Return `expression` on one line, with each such error made null."""
    pieces: list[str] = []
    end = 0
    for one in readings(expression, setting, text_types):
        call = f"current_setting({one.literal}::text, true)"
        pieces.append(expression[end : one.start])
        if one.cast_to is not None or (not one.missing_ok and not one.nullif):
            pieces.append(f"NULLIF({call}, ''::text)")
        else:
            pieces.append(expression[one.start : one.end] if one.missing_ok else call)
        end = one.end
    return _on_one_line("".join(pieces) + expression[end:])


def _on_one_line(expression: str) -> str:
    def line(token: re.Match[str]) -> str:
        text = token[0]
        if "\n" not in text or token["string"] is None:
            return " " if token["space"] else text
        return f"E{text.removeprefix('E')}".replace("\n", "\\n")

    return TOKEN.sub(line, expression)


class _Text:
    """An expression in tokens, white space left out. A span is that of its first and its last token."""

    def __init__(self, expression: str) -> None:
        self._tokens = [token for token in TOKEN.finditer(expression) if not token["space"]]
        self._words = [token[0] for token in self._tokens]
        self._expression = expression

    def readings(self, setting: str, text_types: Collection[str]) -> Iterator[Reading]:
        cases: list[bool] = []  # for each CASE that is open here: whether it has looked at the setting
        for at, word in enumerate(self._words):
            if word == "CASE":
                cases.append(False)
            elif word == "END" and cases:
                cases.pop()
            elif word == "current_setting" and (call := self._call(at, setting)) is not None:
                last, missing_ok = call
                cast_to, nullif = self._fate(at, last, text_types)
                yield Reading(
                    self._tokens[at].start(),
                    self._tokens[last].end(),
                    self._words[at + 2],
                    cast_to,
                    any(cases),
                    nullif,
                    missing_ok,
                )
                cases = [True] * len(cases)

    def _word(self, at: int) -> str:
        return self._words[at] if 0 <= at < len(self._words) else ""

    def _call(self, at: int, setting: str) -> tuple[int, bool] | None:
        """Return the last token of a call that reads `setting`, and whether it may be missing; None if it is another's."""
        literal = self._word(at + 2)
        if self._word(at + 1) != "(" or literal.strip("'").lower() != setting.lower():
            return None
        arguments = at + 3
        if self._words[arguments : arguments + 2] == ["::", "text"]:
            arguments += 2
        if self._word(arguments) == ")":
            return arguments, False
        if self._word(arguments) == "," and self._word(arguments + 2) == ")":
            return arguments + 2, self._word(arguments + 1) == "true"
        return self._close(at + 1), True  # by an expression, which nobody can tell

    def _fate(self, first: int, last: int, text_types: Collection[str]) -> tuple[str | None, bool]:
        """Return what the value of a span is cast to that takes no '', and whether '' becomes null before."""
        while True:
            if self._word(last + 1) == "::":
                text_type = self._text_type(last + 2, text_types)
                if text_type is None:
                    return self._type(last + 2), False
                last = text_type
                continue
            opened = self._open(first)
            if opened is None:
                return None, False
            closed, before = self._close(opened), self._word(opened - 1)
            if self._is_function(opened):
                if before not in HANDS_ON or not self._is_argument(first, last):
                    return None, False
                if before == "NULLIF" and self._word(last + 1) == "," and self._word(last + 2) == "''":
                    return None, True
                first, last = opened - 1, closed
            elif (opened, closed) == (first - 1, last + 1) or self._is_selected(first, last, opened, closed):
                first, last = opened, closed
            else:
                return None, False

    def _is_function(self, opened: int) -> bool:
        before = self._tokens[opened - 1] if opened else None
        return before is not None and before["word"] is not None and before[0] not in PLAIN_BEFORE_A_PARENTHESIS

    def _is_argument(self, first: int, last: int) -> bool:
        return self._word(first - 1) in {"(", ",", "FROM"} and self._word(last + 1) in {")", ","}

    def _is_selected(self, first: int, last: int, opened: int, closed: int) -> bool:
        """Return whether a span is all that a subquery selects, from no table."""
        named = self._word(last + 1) == "AS" and last + 3 == closed
        return self._word(opened + 1) == "SELECT" and first == opened + 2 and (named or last + 1 == closed)

    def _open(self, at: int) -> int | None:
        """Return the parenthesis around a token."""
        depth = 0
        for before in range(at - 1, -1, -1):
            depth += {")": 1, "(": -1}.get(self._words[before], 0)
            if depth < 0:
                return before
        return None

    def _close(self, opened: int) -> int:
        depth = 0
        for at in range(opened, len(self._words)):
            depth += {"(": 1, ")": -1}.get(self._words[at], 0)
            if depth == 0:
                return at
        return len(self._words) - 1

    def _text_type(self, at: int, text_types: Collection[str]) -> int | None:
        """Return the last token of the type at `at` if it takes any text, else None."""
        end = self._end_of_type(at)
        name = re.sub(r"\(\d+\)$", "", self._expression[self._tokens[at].start() : self._tokens[end].end()])
        return end if name in text_types else None

    def _type(self, at: int) -> str:
        return self._expression[self._tokens[at].start() : self._tokens[self._end_of_type(at)].end()]

    def _end_of_type(self, at: int) -> int:
        """Return the last token of a type: several words, a qualified name, its modifiers, and whether it is an array."""
        end = at
        while self._word(end + 1) == "." or self._word(end) == ".":
            end += 1
        while self._word(end + 1) in {"varying", "precision", "with", "without", "time", "zone"}:
            end += 1
        if self._word(end + 1) == "(":
            end = self._close(end + 1)
        while self._word(end + 1) == "[" and self._word(end + 2) == "]":
            end += 2
        while self._word(end + 1) in {"with", "without", "time", "zone"}:
            end += 1
        return end
