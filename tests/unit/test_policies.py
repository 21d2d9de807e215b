"""What becomes of the tenant in a policy, read in the text that the server writes of it."""

from __future__ import annotations

import pytest

from fencepost.policies import mended, readings

TEXTS = ["text", "character varying", '"Odd ""text"']
CALL = "current_setting('app.tenant'::text, true)"
NULL = f"NULLIF({CALL}, ''::text)"


@pytest.mark.parametrize(
    ("expression", "cast_to"),
    [
        (f"(tenant = ({CALL})::integer)", "integer"),
        (f"(({CALL})::double precision = tenant)", "double precision"),
        (f"(({CALL})::timestamp(3) without time zone > at)", "timestamp(3) without time zone"),
        (f"(tenant = ANY (({CALL})::bigint[]))", "bigint[]"),
        (f'(tenant = ({CALL})::"Shop"."Tenant id")', '"Shop"."Tenant id"'),
        (f"(tenant = (((({CALL})::character varying(20))::text))::uuid)", "uuid"),
        (f'(tenant = (({CALL})::"Odd ""text")::uuid)', "uuid"),
        (f"(tenant = (( SELECT {CALL} AS current_setting))::integer)", "integer"),
        (f"(tenant = (( SELECT ({CALL})::text))::integer)", "integer"),
        (f"(tenant = (COALESCE(name, lower(TRIM(BOTH FROM {CALL}))))::integer)", "integer"),
        (f"(tenant = (NULLIF({CALL}, name))::integer)", "integer"),
        (f"(a AND (({CALL}))::boolean)", "boolean"),
        (f"(tenant = ({NULL})::integer)", None),
        (f"(tenant = (COALESCE({NULL}, '0'::text))::integer)", None),
        (f"(name = ({CALL})::text)", None),
        (f"(name = {CALL})", None),
        (f"(length({CALL}) = (1)::bigint)", None),
        (f"(shop.number_of({CALL}))::bigint", None),
        (f"(name || {CALL})::integer = 1", None),
        (f"(tenant = ( SELECT (t.id)::integer FROM t WHERE (t.name = {CALL})))", None),
        (f"(tenant = (( SELECT t.number FROM t WHERE (t.name = {CALL})))::integer)", None),
        (CALL, None),
    ],
)
def test_what_a_reading_is_cast_to(expression: str, cast_to: str | None) -> None:
    """C63: a type that '' is no value of, however many parentheses, subqueries and harmless casts stand between."""
    (reading,) = readings(expression, "app.tenant", TEXTS)
    assert reading.cast_to == cast_to
    assert mended(expression, "app.tenant", TEXTS) == (expression.replace(CALL, NULL) if cast_to else expression)


@pytest.mark.parametrize(
    "expression",
    [
        "(tenant = (current_setting('app.tenants'::text, true))::integer)",
        "(tenant = (current_setting(name, true))::integer)",
        "(name = 'current_setting(''app.tenant''::text)'::text)",
        "(name = E'\\'current_setting(\\\\'::text)",
        '("current_setting(" = 1)',
        "(tenant = shop.current_tenant())",
        "true",
        "",
    ],
)
def test_another_setting_a_literal_or_a_function_is_no_reading(expression: str) -> None:
    """C63: they are left as they are."""
    assert readings(expression, "app.tenant", TEXTS) == []
    assert mended(expression, "app.tenant", TEXTS) == expression


def test_a_case_guards_what_follows_a_look_at_the_setting() -> None:
    """C63: there the order is certain, and only there; a cure mends all the same, since it is told of another place."""
    expression = f"CASE WHEN ({CALL} = ''::text) THEN false ELSE (a = ({CALL})::integer) END OR (a = ({CALL})::integer)"
    first, second, third = readings(expression, "app.tenant", TEXTS)
    assert [first.guarded, second.guarded, third.guarded] == [False, True, False]
    assert mended(expression, "app.tenant", TEXTS).count("NULLIF") == 2
    assert not readings(f"CASE WHEN (b = 1) THEN true ELSE (a = ({CALL})::integer) END", "app.tenant", TEXTS)[0].guarded


def test_a_setting_that_must_be_there_may_be_missing_afterwards() -> None:
    """C63: and one that has its nullif gets no second."""
    for must_be in ("current_setting('App.Tenant'::text)", "current_setting('App.Tenant'::text, false)"):
        (bare,) = readings(f"(name = {must_be})", "app.tenant", TEXTS)
        assert (bare.missing_ok, bare.cast_to) == (False, None)
        wanted = "current_setting('App.Tenant'::text, true)"
        assert mended(f"(name = {must_be})", "app.tenant", TEXTS) == f"(name = NULLIF({wanted}, ''::text))"
        nullif = f"(a = (NULLIF({must_be}, ''::text))::integer)"
        assert mended(nullif, "app.tenant", TEXTS) == nullif.replace(must_be, wanted)
    (unknown,) = readings("(a = current_setting('app.tenant'::text, (b = 1)))", "app.tenant", TEXTS)
    assert unknown.missing_ok


def test_what_is_mended_stands_on_one_line() -> None:
    """A subquery comes in several; a line's end in a literal stays what it is."""
    lines = f"(a = ( SELECT t.a\n   FROM t\n  WHERE (t.b = ({CALL})::integer) AND t.c = 'x\ny'))"
    line = f"(a = ( SELECT t.a FROM t WHERE (t.b = ({NULL})::integer) AND t.c = E'x\\ny'))"
    assert mended(lines, "app.tenant", TEXTS) == line
