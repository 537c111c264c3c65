"""Filters by tables: every operator, missing and null, dates, nesting, and the verdict."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from homing.policy.filters import Filters, read_filters
from homing.policy.filters_reading import OutOfSteps, Reading
from homing.policy.filters_run import Verdict, compiled, read_data
from homing.policy.filters_run import run as run_on

NEW: dict[str, Any] = {
    "ID": "5e7",
    "objCode": "PROJ",
    "name": "Launch of the Ärmel",
    "status": "CUR",
    "priority": 0,
    "percentComplete": 42.5,
    "isDone": False,
    "budget": "1200",
    "plannedCompletionDate": "2026-03-01T17:00:00.000-0600",
    "description": None,
    "groups": ["red", "blue"],
    "one": ["red"],
    "none": [],
    "roles": [{"ID": "r1", "kind": "lead"}, {"ID": "r2", "kind": "team"}],
    "parameterValues": {
        "DE:Region": "EMEA",
        "DE:Sizes": ["S", "M"],
        "DE: v1.0": 7,
        "deep": {"x": {"y": 1}},
    },
}
OLD: dict[str, Any] = {**NEW, "status": "PLN", "groups": ["red"], "description": "x"}
DATA = {"newState": NEW, "oldState": OLD}
MISSING = "notThere"


def run(filters: Filters, data: Any) -> Verdict:
    return run_on(filters, data, Reading(data))


def holds(op: str, field: str, value: Any = None, **more: str) -> bool:
    one = {"fieldName": field, "comparison": op, "fieldValue": value, **more}
    filters = read_filters(json.dumps([one]))
    found = compiled(filters)(DATA)
    told = run(filters, DATA)
    assert told.matches is found
    assert [step.holds for step in told.steps] == [found]
    return found


@pytest.mark.parametrize(
    ("op", "field", "value", "expected"),
    [
        ("eq", "status", "CUR", True),
        ("eq", "status", "cur", False),
        ("eq", "priority", "0", True),
        ("eq", "priority", 0, True),
        ("eq", "priority", False, False),
        ("eq", "priority", "00", True),
        ("eq", "budget", 1200, True),
        ("eq", "budget", "1200.0", False),
        ("eq", "isDone", False, True),
        ("eq", "isDone", "false", True),
        ("eq", "isDone", 0, False),
        ("eq", "plannedCompletionDate", "2026-03-01T23:00:00.000+0000", True),
        ("eq", "plannedCompletionDate", "2026-03-01T23:00:00Z", True),
        ("eq", "plannedCompletionDate", "2026-03-01T17:00:00:000-0600", True),
        ("eq", "groups", ["red", "blue"], True),
        ("eq", "groups", ["blue", "red"], False),
        ("eq", "groups", "red", False),
        ("eq", "parameterValues", {"DE:Region": "EMEA"}, True),
        ("eq", "parameterValues", {"DE:Region": "APAC"}, False),
        ("eq", "parameterValues", {"deep": {"x": {"y": "1"}}, "DE:Region": "EMEA"}, True),
        ("eq", "parameterValues", {"deep": {"x": {"y": 2}}, "DE:Region": "EMEA"}, False),
        ("eq", "parameterValues", {"gone": None}, True),
        ("eq", "parameterValues", {}, True),
        ("eq", "status", {}, False),
        ("eq", "parameterValues.DE:Region", "EMEA", True),
        ("eq", "parameterValues.deep.x.y", 1, True),
        ("eq", "parameterValues.DE: v1.0", 7, True),
        ("ne", "status", "PLN", True),
        ("ne", "status", "CUR", False),
        ("ne", "parameterValues", {"DE:Region": "APAC"}, True),
        ("gt", "priority", -1, True),
        ("gt", "priority", "-1", True),
        ("gt", "priority", 0, False),
        ("gte", "priority", 0, True),
        ("lt", "percentComplete", "100", True),
        ("lte", "percentComplete", 42.5, True),
        ("lt", "budget", 900, False),
        ("lt", "budget", "900", False),
        ("gt", "plannedCompletionDate", "2026-03-01T16:30:00.000-0700", False),
        ("gt", "plannedCompletionDate", "2026-03-01T17:30:00.000-0500", True),
        ("gt", "plannedCompletionDate", "2026-03-01", True),
        ("lt", "plannedCompletionDate", "2026-03-02", True),
        ("lt", "name", "2026-03-02", False),
        ("lt", "name", 5, False),
        ("gt", "name", "K", True),
        ("lt", "isDone", 1, False),
        ("gt", "parameterValues", {"DE: v1.0": 6}, True),
        ("gt", "parameterValues", {"DE: v1.0": 6, "deep": {"x": {"y": 1}}}, False),
        ("contains", "name", "Ärm", True),
        ("contains", "name", "ärm", False),
        ("contains", "budget", 20, True),
        ("contains", "groups", "red", True),
        ("contains", "groups", "re", False),
        ("contains", "priority", "0", True),
        ("contains", "roles", {"kind": "lead"}, True),
        ("contains", "roles", {"kind": "lead", "ID": "r2"}, False),
        ("contains", "parameterValues", {"DE:Region": "ME"}, True),
        ("contains", "parameterValues", {"DE:Sizes": "S"}, True),
        ("notContains", "name", "Ärm", False),
        ("notContains", "groups", "green", True),
        ("notContains", "groups", 5, True),
        ("notContains", "roles", {"kind": "lead"}, False),
        ("containsOnly", "groups", ["blue", "red"], True),
        ("containsOnly", "groups", ["blue", "red", "red"], True),
        ("containsOnly", "groups", ["red"], False),
        ("containsOnly", "groups", ["red", "blue", "green"], False),
        ("containsOnly", "one", "red", True),
        ("containsOnly", "groups", "red", False),
        ("containsOnly", "status", "CUR", True),
        ("containsOnly", "none", [], True),
        ("containsOnly", "one", [], False),
        ("containsOnly", "parameterValues", {"DE:Sizes": ["M", "S"]}, True),
        ("containsOnly", "roles", {"kind": "lead"}, False),
        ("exists", "status", None, True),
        ("notExists", "status", None, False),
    ],
)
def test_an_operator_compares_so(op: str, field: str, value: Any, expected: bool) -> None:
    assert holds(op, field, value) is expected


@pytest.mark.parametrize("field", [MISSING, "description", "status.deeper", "groups.0"])
@pytest.mark.parametrize(
    ("op", "value", "expected"),
    [
        ("eq", "x", False),
        ("eq", None, True),
        ("eq", {}, False),
        ("eq", {"a": None}, False),
        ("ne", "x", True),
        ("ne", None, False),
        ("gt", 0, False),
        ("gte", 0, False),
        ("lt", 0, False),
        ("lte", "2026-01-01", False),
        ("contains", "", False),
        ("notContains", "x", True),
        ("containsOnly", "x", False),
        ("containsOnly", [], True),
        ("exists", None, False),
        ("notExists", None, True),
    ],
)
def test_missing_and_null_are_the_same(field: str, op: str, value: Any, expected: bool) -> None:
    assert holds(op, field, value) is expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1}, {"a": 2}, True),
        ({"a": 1}, {"a": 1.0}, False),
        ({"a": 1}, {"a": True}, True),
        ({"a": 1}, {"a": "1"}, True),
        ({}, {"a": None}, False),
        ({"a": None}, {"a": 0}, True),
        ({}, {"a": 1}, True),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}, False),
        ({"a": [1, 2]}, {"a": [2, 1]}, True),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 2, "b": 1}}, False),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, True),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, True),
        ({"a": [1, 2]}, {"a": [1, 2, 3]}, True),
    ],
)
def test_changed_compares_the_two_states(before: Any, after: Any, expected: bool) -> None:
    for one in ({"fieldName": "a", "comparison": "changed"}, {"field": "a", "op": "changed"}):
        test = compiled(read_filters(json.dumps([one])))
        assert test({"oldState": before, "newState": after}) is expected


def test_changed_walks_any_depth() -> None:
    deep = b"[" * 400 + b"]" * 400
    data = b'{"oldState":{"a":%s},"newState":{"a":%s}}' % (deep, deep)
    one = read_filters('[{"fieldName":"a","comparison":"changed"}]')
    seen = read_data(data)
    with pytest.raises(OutOfSteps):
        compiled(one)(seen)
    assert compiled(one)(seen, Reading(seen)) is False
    assert run(one, seen).matches is False


def test_each_filter_looks_at_its_own_state() -> None:
    moved = [
        {"fieldName": "status", "fieldValue": "PLN", "state": "oldState"},
        {"fieldName": "status", "fieldValue": "CUR"},
    ]
    assert compiled(read_filters(json.dumps(moved)))(DATA)
    assert not holds("eq", "status", "CUR", state="oldState")


def test_the_native_form_begins_at_data() -> None:
    def test(data: Any, *filters: dict[str, Any], connector: str = "AND") -> bool:
        return compiled(read_filters(json.dumps(filters), connector))(data)

    over = {"field": "data.amount", "op": "gt", "value": 100}
    assert test({"amount": 101}, over)
    assert not test({"amount": 100}, over)
    assert not test([1], over)
    assert test({"a": {"b": "x"}}, {"field": "data.a.b", "value": "x"})
    assert test("text", {"field": "data", "op": "contains", "value": "ex"})
    assert test(DATA, {"field": "status", "state": "oldState", "value": "PLN"})
    assert test(
        {"amount": 1, "paid": True}, over, {"field": "data.paid", "value": True}, connector="OR"
    )


@pytest.mark.parametrize("connector", ["AND", "OR"])
@pytest.mark.parametrize("outer", ["AND", "OR"])
def test_groups_have_a_connector_of_their_own(outer: str, connector: str) -> None:
    yes = {"fieldName": "status", "fieldValue": "CUR"}
    no = {"fieldName": "status", "fieldValue": "PLN"}
    mixed = {"type": "group", "connector": connector, "filters": [yes, no]}
    inner = connector == "OR"
    for other, holds_other in ((yes, True), (no, False)):
        found = compiled(read_filters(json.dumps([mixed, other]), outer))(DATA)
        assert found is ((inner and holds_other) if outer == "AND" else (inner or holds_other))


def test_a_group_joins_with_and_unless_told() -> None:
    yes, no = ({"fieldName": "status", "fieldValue": value} for value in ("CUR", "PLN"))
    assert not compiled(read_filters(json.dumps([{"type": "group", "filters": [yes, no]}])))(DATA)


def test_no_filters_match_everything() -> None:
    assert compiled(read_filters("[]", "OR"))(DATA)
    assert compiled(read_filters("[]"))(None)
    assert run(read_filters("[]", "OR"), None).matches


def test_the_verdict_says_which_condition_decided() -> None:
    filters = [
        {"fieldName": "status", "fieldValue": "CUR"},
        {"fieldName": "priority", "comparison": "gt", "fieldValue": 5},
        {"fieldName": "nope", "comparison": "exists"},
    ]
    told = run(read_filters(json.dumps(filters)), DATA)
    assert [step.holds for step in told.steps] == [True, False, False]
    assert [step.decided for step in told.steps] == [False, True, False]
    assert told.sentence == (
        "It does not match: filters[1]: newState.priority is greater than 5: no, it is 0."
    )
    either = run(read_filters(json.dumps(filters), "OR"), DATA)
    assert [step.decided for step in either.steps] == [True, False, False]
    assert either.sentence == (
        'It matches: filters[0]: newState.status equals "CUR": yes, it is "CUR".'
    )
    assert run(read_filters(json.dumps(filters[:1] * 2)), DATA).sentence == (
        "It matches: all 2 conditions hold."
    )
    neither = run(read_filters(json.dumps(filters[1:]), "OR"), DATA)
    assert neither.sentence == "It does not match: none of 2 conditions holds."
    changed = run(read_filters('[{"fieldName":"status","comparison":"changed"}]'), DATA)
    assert changed.sentence == (
        'It matches: filters[0]: status has changed: yes, it was "PLN" and is "CUR".'
    )
    gone = run(read_filters('[{"field":"data.x","op":"exists"}]'), DATA)
    assert gone.sentence == (
        "It does not match: filters[0]: data.x exists: no, it is missing or null."
    )


def test_within_a_group_the_deciding_condition_is_named() -> None:
    yes, no = ({"fieldName": "status", "fieldValue": value} for value in ("CUR", "PLN"))
    group = {"type": "group", "connector": "AND", "filters": [yes, no]}
    told = run(read_filters(json.dumps([yes, group])), DATA)
    decided = [step.condition.at for step in told.steps if step.decided]
    assert decided == ["filters[1].filters[1]"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a":1e999}', {"a": Decimal("1e999")}),
        (b"1", 1),
        (b"1" * 5000, Decimal("1" * 5000)),
        (b"1e9999999999999999999", Decimal("1e100000000000000000")),
        (b'{"a":', None),
    ],
)
def test_data_that_is_hard_to_read_never_fails(data: bytes, expected: Any) -> None:
    assert read_data(data) == expected
