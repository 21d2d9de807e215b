"""JSON in and out of the table, exactly or not at all.

What is enqueued arrives equal or is refused, by name: json.dumps alone would turn int keys into strings, tuples into lists
and NaN into something that PostgreSQL does not read.
"""

import json
import math
from typing import Any

LIMIT = 1024 * 1024
"""Bytes of JSON that a payload or a result may have."""


_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


class NotJson(ValueError):
    """This value has no JSON that would come back equal. The text names where, and the type."""


def encode(value: Any, name: str) -> str:
    """Return `value` as JSON text; `name` is what errors call it.

    Raises NotJson if it would not arrive equal, or has more than LIMIT bytes.
    """
    if value is None:
        return "null"  # what most jobs return
    try:
        _check(value, (name,))
        text = _JSON.encode(value)
        size = len(text.encode())
    except RecursionError:
        raise NotJson(f"{name} is nested too deeply, or holds itself") from None
    except UnicodeEncodeError:
        raise NotJson(f"{name} holds half of a surrogate pair, which is no text") from None
    except ValueError as error:
        raise error if isinstance(error, NotJson) else NotJson(f"{name} is no JSON: {error}") from None
    if size > LIMIT:
        raise NotJson(f"{name} is {size} bytes of JSON, and may be {LIMIT}: keep large data elsewhere and pass its key")
    return text


def _check(value: Any, path: tuple[Any, ...]) -> None:
    match value:
        case str():
            if "\0" in value:
                raise _refused(path, "holds a NUL character, which PostgreSQL can't store")
        case None | bool() | int():
            pass
        case float():
            if not math.isfinite(value):
                raise _refused(path, f"is {value}, which JSON has no number for")
            # PostgreSQL keeps a number in decimal and writes it without an exponent: from here on an integer comes back.
            if abs(value) >= 1e16 and json.loads(format(value, "f").split(".")[0]) != _shortest(value):
                raise _refused(path, f"is {value!r}, too large a float to come back equal: give an int or a str")
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise _refused(path, f"has the key {key!r} ({type(key).__name__}): keys must be str")
                if "\0" in key:
                    raise _refused(path, "has a key with a NUL character, which PostgreSQL can't store")
                _check(item, (*path, key))
        case list():
            for place, item in enumerate(value):
                _check(item, (*path, place))
        case _:
            raise _refused(path, f"is a {type(value).__name__}: give what JSON has (dict, list, str, int, float, bool, None)")


def _refused(path: tuple[Any, ...], why: str) -> NotJson:
    """Return the error for what lies at `path`, its name and then keys and indexes: in words only where that is told."""
    name, *steps = path
    return NotJson(f"{name}{''.join(f'[{step!r}]' for step in steps)} {why}")


def _shortest(value: float) -> int:
    """Return the integer that the shortest decimal text of `value` denotes: what PostgreSQL keeps."""
    mantissa, _, exponent = repr(value).partition("e")
    digits = mantissa.replace(".", "")
    zeros = int(exponent) - len(mantissa.partition(".")[2])
    return int(digits + "0" * zeros)
