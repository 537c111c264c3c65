"""Properties: the compiled evaluator and the slow one agree on everything that is admitted."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from homing.policy.filters import Filters, filter_problems, read_filters
from homing.policy.filters_reading import OutOfSteps, Reading
from homing.policy.filters_run import Verdict, compiled, read_data, run
from homing.policy.filters_values import _usual_moment, read_moment, read_number
from policy import slow_filters

TEXTS = st.one_of(
    st.sampled_from(
        [
            "",
            "a",
            "ab",
            "true",
            "false",
            "null",
            "0",
            "1",
            "1.0",
            "-1",
            "01",
            "1e2",
            "100",
            "1.",
            "é",
        ]
    ),
    st.sampled_from(
        [
            "2026-03-01",
            "2026-03-01T00:00:00Z",
            "2026-03-01T00:00:00.000+0000",
            "2026-02-28T18:00:00.000-0600",
            "2026-03-01T01:00:00:000+01:00",
            "2026-03-01T00:00",
            "2026-02-30",
            "2026-03-01T00:00:00.000000001Z",
        ]
    ),
    st.text(alphabet="ab1.-e", max_size=4),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 101),
    st.sampled_from([0.0, 1.0, 0.5, 1e2, 2**63, 1e300]),
    TEXTS,
)
NAMES = st.sampled_from(["a", "b", "a.b", "c"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)
STATES = st.dictionaries(NAMES, VALUES, max_size=4)
DATA = st.one_of(
    st.fixed_dictionaries({}, optional={"newState": STATES, "oldState": STATES, "a": VALUES}),
    VALUES,
)
OPS = st.sampled_from(
    [
        "eq",
        "ne",
        "gt",
        "gte",
        "lt",
        "lte",
        "contains",
        "notContains",
        "containsOnly",
        "changed",
        "exists",
        "notExists",
    ]
)
FIELDS = st.sampled_from(["a", "b", "a.b", "a.b.c", "b.a", "c"])
WORKFRONT = st.fixed_dictionaries(
    {"fieldName": FIELDS, "fieldValue": VALUES},
    optional={"comparison": OPS, "state": st.sampled_from(["newState", "oldState"])},
)
NATIVE = st.one_of(
    st.fixed_dictionaries(
        {"field": FIELDS.map("data.".__add__), "value": VALUES}, optional={"op": OPS}
    ),
    st.fixed_dictionaries(
        {"field": FIELDS, "value": VALUES, "op": OPS, "state": st.sampled_from(["newState"])}
    ),
)
CONDITIONS = st.one_of(WORKFRONT, WORKFRONT, NATIVE)
GROUPS = st.fixed_dictionaries(
    {"type": st.just("group"), "filters": st.lists(CONDITIONS, min_size=2, max_size=5)},
    optional={"connector": st.sampled_from(["AND", "OR"])},
)
CONNECTORS = st.sampled_from(["AND", "OR"])


def told_of(filters: Filters, data: Any) -> Verdict:
    """In slices of one step each."""
    reading = Reading(data)
    while True:
        reading.left = 0
        try:
            return run(filters, data, reading)
        except OutOfSteps:
            continue


def admitted(part: dict[str, Any]) -> bool:
    return not filter_problems(json.dumps([part]), "AND")


@settings(max_examples=500, deadline=None)
@given(CONDITIONS.filter(admitted), DATA)
def test_one_condition_means_the_same_in_both(condition: dict[str, Any], data: Any) -> None:
    filters = read_filters(json.dumps([condition]))
    seen = read_data(json.dumps(data).encode())
    expected = slow_filters.matches([condition], "AND", data)
    assert compiled(filters)(seen) is expected
    assert compiled(filters)(seen, Reading(seen)) is expected
    assert told_of(filters, seen).matches is expected


@settings(max_examples=120, deadline=None)
@given(st.lists(st.one_of(CONDITIONS, GROUPS).filter(admitted), max_size=4), CONNECTORS, DATA)
def test_filters_and_groups_mean_the_same_in_both(
    parts: list[dict[str, Any]], connector: str, data: Any
) -> None:
    filters = read_filters(json.dumps(parts), connector)
    seen = read_data(json.dumps(data).encode())
    expected = slow_filters.matches(parts, connector, data)
    assert compiled(filters)(seen) is expected
    told = told_of(filters, seen)
    assert told.matches is expected
    assert not parts or any(step.decided for step in told.steps)


@settings(max_examples=120, deadline=None)
@given(st.lists(st.one_of(CONDITIONS, GROUPS, VALUES), max_size=4), st.one_of(CONNECTORS, VALUES))
def test_whatever_is_given_is_read_or_refused_with_a_place(parts: list[Any], joined: Any) -> None:
    connector = joined if isinstance(joined, str) else json.dumps(joined)
    for problem in filter_problems(json.dumps(parts), connector):
        assert problem.field.startswith(("filters", "filterConnector"))
        assert problem.reason


@settings(max_examples=500, deadline=None)
@given(st.text(alphabet="0123456789-+.eE", max_size=12))
def test_a_text_is_the_same_number_in_both(text: str) -> None:
    one, other = read_number(text), slow_filters._number(text)
    assert (one is None) == (other is None)
    assert one is None or one == other


@settings(max_examples=500, deadline=None)
@given(st.datetimes(), st.integers(-23, 23), st.sampled_from([".", ":", ","]), st.integers(0, 999))
def test_a_text_is_the_same_moment_in_both(at: Any, hours: int, mark: str, ms: int) -> None:
    zone = f"{'-' if hours < 0 else '+'}{abs(hours):02d}00"
    text = f"{at.year:04d}-{at:%m-%dT%H:%M:%S}{mark}{ms:03d}{zone}"
    slow, fast = slow_filters._moment(text), read_moment(text)
    assert fast is not None
    if slow is not None:  # The year 1 has no day before.
        whole = fast - slow[1]
        assert whole % 10**9 == 0
        assert whole // 10**9 == int(slow[0].timestamp())


USUAL = "2026-03-01T17:00:00.000-0600"


@settings(max_examples=500, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, len(USUAL) - 1), st.sampled_from("0123456789-+:.,TZ W")),
        max_size=3,
    )
)
def test_the_short_way_to_read_a_date_reads_no_other(changes: list[tuple[int, str]]) -> None:
    letters = list(USUAL)
    for place, letter in changes:
        letters[place] = letter
    text = "".join(letters)
    short, slow = _usual_moment(text), slow_filters._moment(text)
    if short is not None:
        assert slow is not None
        assert short == int(slow[0].timestamp()) * 10**9 + slow[1]
