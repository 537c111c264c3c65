"""How one value meets another: text as number, flag or date, dates in every form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from homing.policy.filters import read_filters
from homing.policy.filters_run import compiled
from homing.policy.filters_values import read_moment


@pytest.mark.parametrize(
    ("value", "found", "expected"),
    [
        (True, True, True),
        (True, "true", True),
        (True, "false", False),
        (True, "True", False),
        (True, 1, False),
        (False, "false", True),
        (False, None, False),
        ("true", True, True),
        ("true", False, False),
        ("false", False, True),
        ("false", None, False),
        ("yes", True, False),
        (5, "5", True),
        (5, "5.0", True),
        (5, "6", False),
        (5, True, False),
        (5, ["5"], False),
        ("5", 5, True),
        ("5", 6, False),
        ("five", 5, False),
        ("5e1", 50, True),
        ("1" * 41, int("1" * 41), False),
        ("1" * 40, int("1" * 40), True),
    ],
)
def test_text_meets_numbers_and_flags_by_what_it_says(
    value: Any, found: Any, expected: bool
) -> None:
    one = read_filters(json.dumps([{"field": "data.a", "value": value}]))
    assert compiled(one)({"a": found}) is expected


@pytest.mark.parametrize(
    ("op", "value", "found", "expected"),
    [
        ("contains", True, "it is true", True),
        ("contains", True, "it is false", False),
        ("contains", False, "it is false", True),
        ("contains", 1.5, "1.50", True),
        ("containsOnly", [1, "a"], ["a", 1, "a", 1], True),
        ("containsOnly", [1, "a"], ["a", 1, "b"], False),
        ("containsOnly", [1, "a"], ["a", "a"], False),
        ("containsOnly", [1], [True], False),
        ("containsOnly", ["a"], [["a"]], False),
    ],
)
def test_what_a_value_holds(op: str, value: Any, found: Any, expected: bool) -> None:
    one = read_filters(json.dumps([{"field": "data.a", "op": op, "value": value}]))
    assert compiled(one)({"a": found}) is expected


NOON = "2026-03-01T12:00:00.000+0000"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("2026-03-01T12:00:00.000-0000", 0, id="as Workfront writes it"),
        pytest.param("2026-03-01T13:30:00.000+0130", 0, id="east"),
        pytest.param("2026-03-01T10:30:00.000-0130", 0, id="west"),
        pytest.param("2026-03-01T12:00:00.001+0000", 1, id="a millisecond later"),
        pytest.param("2026-02-28T12:00:00.000+0000", -86_400_000, id="a day before"),
        pytest.param("2026-03-01T12:00:00:000+0000", 0, id="with a colon"),
        pytest.param("2026-03-01T12:00:00,000+0000", 0, id="with a comma"),
        pytest.param("2026-03-01 12:00:00.000+0000", 0, id="with a space"),
        pytest.param("2026-03-01t12:00:00z", 0, id="in lower case"),
        pytest.param("2026-03-01T12:00Z", 0, id="without seconds"),
        pytest.param("2026-03-01T12:00", 0, id="without an offset it is UTC"),
        pytest.param("2026-03-01T14:00+02", 0, id="an offset of hours"),
        pytest.param("2026-03-01T13:30+01:30", 0, id="an offset of hours and minutes"),
        pytest.param("2026-03-01T10:30-01:30", 0, id="another to the west"),
        pytest.param("2026-03-01T12:00:00.5Z", 500, id="half a second"),
        pytest.param("2026-03-01T11:59:60Z", 0, id="a leap second"),
        pytest.param("2026-03-01T12:01:01Z", 61_000, id="a minute and a second later"),
        pytest.param("2026-03-02", 43_200_000, id="a day begins at midnight"),
        pytest.param("1969-12-31T23:59:59.999+0000", None, id="before 1970"),
    ],
)
def test_moments_are_compared_whatever_their_form(text: str, expected: int | None) -> None:
    before, now, after = (
        read_filters(json.dumps([{"field": "data.a", "op": op, "value": NOON}]))
        for op in ("lt", "eq", "gt")
    )
    later = -1 if expected is None else expected
    found = [compiled(one)({"a": text}) for one in (before, now, after)]
    assert found == [later < 0, later == 0, later > 0]
    if expected is not None:
        moment, noon = read_moment(text), read_moment(NOON)
        assert moment is not None
        assert noon is not None
        assert moment - noon == expected * 10**6


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-30",
        "2026-13-01T12:00:00.000+0000",
        "2026-03-01T24:00:00.000+0000",
        "2026-03-01T12:60:00.000+0000",
        "2026-03-01T12:00:00.000+0060",
        "2026-03-01T12:00:00.000+2400",
        "2026-03-01T12:00:00.000 0000",
        "2026-03-01T12:00:00.0000000000Z",
        "2026-03-01X12:00:00.000+0000",
        "2026-03-01T12-00:00.000+0000",
        "2026/03/01",
        "20260301",
        "2026-3-1",
        "0000-01-01",
        "٢٠٢٦-03-01T12:00:00.000+0000",
    ],
)
def test_what_is_no_date_is_text(text: str) -> None:
    assert read_moment(text) is None
