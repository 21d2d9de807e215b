"""Load the demo's statements from the `.sql` files beside this module."""

import re
from functools import cache
from importlib import resources

from psycopg import sql


@cache
def statement(name: str) -> sql.SQL:
    """Return the statements of the file `name`.sql. Comments stay behind: psycopg would read a percent sign in them."""
    text = resources.files(__package__).joinpath(f"{name}.sql").read_text(encoding="utf-8")
    return sql.SQL(re.sub(r"^\s*--.*\n", "", text, flags=re.MULTILINE))
