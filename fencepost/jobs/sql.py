"""Load the statements: one verb, one `.sql` file beside the module that sends it.

Statements name everything with its schema, so none depends on a search_path. They are written for the schema
`fencepost` and can be pasted into psql as they stand; the name of another schema is put in here.
"""

import re
from functools import cache
from importlib import resources

from psycopg import sql


@cache
def statement(verb: str, schema: str) -> bytes:
    """Return the statement of `verb` (a file's name without `.sql`) for the tables in `schema`.

    Comments stay behind: psycopg reads a percent sign in them as a parameter, and the server need not read them. It is bytes,
    since psycopg remembers what parameters those have, and puts an object of its own together anew for each use.
    """
    text = resources.files(__package__).joinpath(f"{verb}.sql").read_text(encoding="utf-8")
    return in_schema(re.sub(r"^\s*--.*\n", "", text, flags=re.MULTILINE), schema).as_bytes()


@cache
def message(schema: str, *verbs: str) -> bytes:
    """Return the statements of `verbs` as one message: if one fails, those behind it are skipped."""
    return b";\n".join(statement(verb, schema) for verb in verbs)


def read_all(schema: str) -> None:
    """Read them all now: later there may be no descriptor free, or another version of the package where this one was."""
    for file in resources.files(__package__).iterdir():
        if file.name.endswith(".sql"):
            statement(file.name.removesuffix(".sql"), schema)


def in_schema(text: str, schema: str) -> sql.Composed:
    """Return `text` with `fencepost` turned into the name of `schema`: before a dot, as an SQL name, or as a literal."""
    parts = re.split(r"(\bfencepost(?=\.)|(?<=schema )fencepost\b|(?<=listen )fencepost\b|'fencepost')", text)
    return sql.Composed([_part(part, schema) for part in parts])


def _part(part: str, schema: str) -> sql.Composable:
    if part == "fencepost":
        return sql.Identifier(schema)
    if part == "'fencepost'":
        return sql.Literal(schema)
    return sql.SQL(part)  # a file of this package, not input
