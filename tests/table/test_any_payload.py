"""Whatever is accepted as a payload comes back equal from PostgreSQL; whatever is not is refused in our words."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fencepost.jobs.payload import NotJson, encode
from support.databases import Database

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**80), max_value=10**80)
    | st.floats()
    | st.floats(min_value=1e14, max_value=1e25)
    | st.text(max_size=20)
    | st.text(st.characters(), max_size=20)
    | st.binary(max_size=3)
    | st.just((1, 2))
)
keys = st.text(max_size=10) | st.text(st.characters(), max_size=5) | st.integers(min_value=0, max_value=3)
values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda below: st.lists(below, max_size=4) | st.dictionaries(keys, below, max_size=4), max_leaves=12
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(payload=st.dictionaries(keys, values, max_size=5))
def test_a_payload_comes_back_equal_or_is_refused(database: Database, payload: dict[Any, Any]) -> None:
    """Text, numbers of any size, odd characters: through jsonb and back."""
    try:
        text = encode(payload, "payload")
    except NotJson as refused:
        told = str(refused)
        assert told.startswith("payload")
        return
    back = json.loads(database.value("select %s::jsonb::text", [text]))
    assert back == payload
    assert _types(back) == _types(payload)


def _types(value: Any) -> Any:
    """Return the shape of a value: True == 1 for Python, and is not the same to a handler."""
    match value:
        case dict():
            return {key: _types(item) for key, item in value.items()}
        case list():
            return [_types(item) for item in value]
        case bool() | str() | None:
            return type(value).__name__
        case _:
            return "number"
