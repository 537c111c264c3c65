"""What filters cost: refused when they are given, counted in steps, and the same in slices."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homing.errors import Invalid
from homing.policy.filters import comparisons, filter_problems, read_affordable, read_filters
from homing.policy.filters_reading import SLICE_STEPS, OutOfSteps, Reading
from homing.policy.filters_run import compiled, read_data, show_value
from homing.policy.wants import TenantWants, picked_whole, picking, wants_of
from policy import slow_filters
from policy.build import NOW, a_subscription
from policy.test_filters_agree import CONDITIONS, NAMES, SCALARS, admitted

ONE = {"field": "data.a", "op": "containsOnly", "value": ["x"] * 100}
SEARCH = {"field": "data.a", "op": "contains", "value": {"b": 1}}


@pytest.mark.parametrize(
    ("filters", "reason"),
    [
        ([ONE] * 10, None),
        ([ONE] * 10 + [{"field": "data.a", "op": "exists"}], "these compare 1,001: shorten"),
        ([{"field": "data.a", "value": {"b": [{"c": [1] * 99}] * 10, "d": 1}}], None),
        ([{"field": "data.a", "value": {"b": [{"c": [1] * 99}] * 11}}], "these compare 1,089"),
        ([SEARCH] * 20, None),
        ([SEARCH] * 21, "these have 21: put several names into one object"),
        ([{"type": "group", "filters": [SEARCH] * 3}] * 7, "these have 21"),
        ([{**SEARCH, "op": "eq"}] * 50, None),
    ],
)
def test_filters_that_would_cost_too_much_are_refused(filters: Any, reason: str | None) -> None:
    text = json.dumps(filters)
    problems = filter_problems(text, "AND")
    assert read_filters(text).parts  # Those that are stored are read all the same.
    if reason is None:
        assert problems == ()
        return
    (problem,) = problems
    assert problem.field == "filters"
    assert reason in problem.reason
    with pytest.raises(Invalid):
        read_affordable(text)


def steps(filters: list[Any], data: Any) -> int:
    reading = Reading(data, left=10**9)
    compiled(read_filters(json.dumps(filters)))(data, reading)
    return reading.spent


OBJECTS = {"op": "notContains", "value": {"b": 1, "c": 2}}


@pytest.mark.parametrize(
    ("of_items", "more"),
    [
        (lambda n: ["x"] * n, {"op": "notContains", "value": "y"}),
        (lambda n: ([f"{i}" for i in range(n)]), {"op": "notContains", "value": "y"}),
        (lambda n: ["x", "y"] * n, {"op": "containsOnly", "value": ["x", "y"] * 20}),
        (lambda n: [{"b": 1, "c": 3}] * n, OBJECTS),
        (lambda n: ({f"{i}": [i] for i in range(n)}), {"op": "changed"}),
        (lambda n: "x" * 100 * n, {"op": "notContains", "value": "y"}),
    ],
)
def test_twice_the_data_takes_twice_the_steps(of_items: Any, more: dict[str, Any]) -> None:
    counts = []
    for size in (1_000, 2_000):
        found = of_items(size)
        state = {"a": found}
        data = {"newState": state, "oldState": json.loads(json.dumps(state))}
        counts.append(steps([{"field": "a", "state": "newState", **more}], data))
    assert 0 < counts[1] <= 2 * counts[0] + 10


@pytest.mark.parametrize(
    "more",
    [
        {"op": "notContains", "value": "y"},
        {"op": "contains", "value": 500},
        {"op": "containsOnly", "value": list(range(50))},
        {"op": "changed"},
    ],
)
def test_asking_a_list_again_takes_no_more_steps(more: dict[str, Any]) -> None:
    data = {"newState": {"a": list(range(1_000))}, "oldState": {"a": list(range(1_000))}}
    one = {"field": "a", "state": "newState", **more}
    assert steps([{"type": "group", "connector": "OR", "filters": [one] * 5}], data) < 2_100


@settings(max_examples=100, deadline=None)
@given(
    st.lists(CONDITIONS.filter(admitted), min_size=1, max_size=3),
    st.fixed_dictionaries(
        {},
        optional={
            side: st.dictionaries(
                NAMES,
                st.one_of(
                    st.lists(SCALARS, min_size=8, max_size=12),
                    st.lists(st.dictionaries(NAMES, SCALARS, max_size=2), min_size=9, max_size=12),
                ),
                max_size=3,
            )
            for side in ("newState", "oldState", "a")
        },
    ),
)
def test_long_lists_mean_the_same_in_slices_of_one_step(
    conditions: list[dict[str, Any]], data: Any
) -> None:
    test = compiled(read_filters(json.dumps(conditions)))
    seen = read_data(json.dumps(data).encode())
    reading = Reading(seen)
    while True:
        reading.left = 0
        try:
            found = test(seen, reading)
        except OutOfSteps:
            continue
        break
    assert found is slow_filters.matches(conditions, "AND", data)


def test_many_subscriptions_are_asked_in_slices_that_are_short() -> None:
    """A slice ends with the step in which it is used up."""
    wants = TenantWants()
    found = [
        a_subscription(
            id=number,
            filters=json.dumps([{**SEARCH, "value": {"b": number}}, {**ONE, "op": "ne"}]),
        )
        for number in range(1, 101)
    ]
    for one in found:
        wants.put(one.id, wants_of(one))
    assert wants.steps == 100 * (1 + 100 + 1)
    data = json.dumps({"a": [{"b": number} for number in range(0, 1_000, 2)]}).encode()
    slices = picking(found, wants, data, now=NOW, steps=SLICE_STEPS)
    count = 0
    try:
        next(slices)
        while True:
            count += 1
            slices.send(SLICE_STEPS)
    except StopIteration as end:
        kept, left = end.value
    assert [one.id for one in kept] == list(range(2, 101, 2))
    assert left <= SLICE_STEPS
    assert count > (100 * 102 + 50 * 500) // SLICE_STEPS
    assert picked_whole(found, wants, data, now=NOW) == kept
    for one in found:
        wants.put(one.id, None)
    assert (dict(wants), wants.steps) == ({}, 0)


def test_the_comparisons_of_filters_are_counted() -> None:
    filters = [ONE, {"type": "group", "filters": [SEARCH, {"field": "data.a", "value": []}]}]
    assert comparisons(read_filters(json.dumps(filters))) == 102


def test_a_long_value_is_shown_at_the_cost_of_what_is_shown() -> None:
    class Counted(list[int]):
        seen = 0

        def __iter__(self) -> Any:
            for item in super().__iter__():
                self.seen += 1
                yield item

    value = Counted(range(100_000))
    assert show_value(value) == str(list(range(100)))[:120] + "…"
    assert value.seen < 100
    assert show_value("x" * 10**6) == '"' + "x" * 119 + "…"
    assert show_value(["é" * 500]) == '["' + "é" * 118 + "…"
    assert show_value({"a": [1, "b", None]}) == '{"a": [1, "b", null]}'
