"""Filters that are wrong: what is refused, at which place, and what is just within the limits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from homing.errors import Invalid
from homing.policy.filters import filter_problems, read_filters

GOOD = {"fieldName": "a", "fieldValue": 1}


@pytest.mark.parametrize(
    ("filters", "connector", "problems"),
    [
        ([1], "AND", {"filters[0]": "must be an object"}),
        ([{}], "AND", {"filters[0].field": "name of a field"}),
        ([{"fieldName": "a"}], "AND", {"filters[0].fieldValue": "must be given for eq"}),
        ([{"field": "data.a"}], "AND", {"filters[0].value": "must be given for eq"}),
        ([{**GOOD, "comparison": "change"}], "AND", {"filters[0].comparison": "changed, exists"}),
        ([{**GOOD, "comparison": "EQ"}], "AND", {"filters[0].comparison": "one of eq, ne"}),
        ([{**GOOD, "comparison": 1}], "AND", {"filters[0].comparison": "one of eq, ne"}),
        ([{**GOOD, "state": "new"}], "AND", {"filters[0].state": "newState or oldState"}),
        ([{**GOOD, "colour": 1}], "AND", {"filters[0].colour": "is unknown"}),
        ([{"field": "amount", "value": 1}], "AND", {"filters[0].field": "must begin with data."}),
        ([{**GOOD, "fieldName": ""}], "AND", {"filters[0].fieldName": "1 to 256"}),
        ([{**GOOD, "fieldName": "a" * 257}], "AND", {"filters[0].fieldName": "1 to 256"}),
        ([{**GOOD, "fieldName": "a." * 20}], "AND", {"filters[0].fieldName": "16 names deep"}),
        ([GOOD], "and", {"filterConnector": "AND or OR"}),
        ([], "XOR", {"filterConnector": "AND or OR"}),
        ([GOOD] * 51, "AND", {"filters": "at most 50"}),
        (
            [{"type": "group", "filters": [GOOD, GOOD]}] * 11,
            "AND",
            {"filters": "at most 10 groups"},
        ),
        ([{"type": "group", "filters": [GOOD]}], "AND", {"filters[0].filters": "2 to 5"}),
        ([{"type": "group", "filters": [GOOD] * 6}], "AND", {"filters[0].filters": "2 to 5"}),
        ([{"type": "group"}], "AND", {"filters[0].filters": "2 to 5"}),
        ([{"filters": [GOOD, GOOD]}], "AND", {"filters[0].type": "must be group"}),
        (
            [GOOD, {"type": "group", "connector": "NOT", "filters": [GOOD, {"fieldName": 5}]}],
            "AND",
            {
                "filters[1].connector": "AND or OR",
                "filters[1].filters[1].fieldName": "name of a field",
            },
        ),
        (
            [{"type": "group", "filters": [GOOD, {"type": "group", "filters": [GOOD, GOOD]}]}],
            "AND",
            {"filters[0].filters[1]": "holds no groups"},
        ),
        (
            [{**GOOD, "comparison": "gt", "fieldValue": None}],
            "AND",
            {"filters[0].fieldValue": "text or a number"},
        ),
        (
            [{**GOOD, "comparison": "lt", "fieldValue": True}],
            "AND",
            {"filters[0].fieldValue": "text or a number"},
        ),
        (
            [{**GOOD, "comparison": "lt", "fieldValue": {"a": [1]}}],
            "AND",
            {"filters[0].fieldValue": "takes no list"},
        ),
        (
            [{**GOOD, "comparison": "contains", "fieldValue": ["a"]}],
            "AND",
            {"filters[0].fieldValue": "takes no list"},
        ),
        (
            [{**GOOD, "comparison": "contains", "fieldValue": None}],
            "AND",
            {"filters[0].fieldValue": "not be null"},
        ),
        (
            [{**GOOD, "comparison": "containsOnly", "fieldValue": [{}]}],
            "AND",
            {"filters[0].fieldValue": "text, a number"},
        ),
        (
            [{**GOOD, "comparison": "contains", "fieldValue": {}}],
            "AND",
            {"filters[0].fieldValue": "empty object"},
        ),
        (
            [{**GOOD, "fieldValue": [[[[[[[[[1]]]]]]]]]}],
            "AND",
            {"filters[0].fieldValue": "at most 8 deep"},
        ),
        ([{**GOOD, "fieldValue": [1] * 101}], "AND", {"filters[0].fieldValue": "100 items"}),
        ([{**GOOD, "fieldValue": "x" * 33_000}], "AND", {"filters": "at most 32 KiB"}),
        ({}, "AND", {"filters": "must be a list"}),
        (
            [{**GOOD, "fieldValue": {str(n): 1 for n in range(101)}}],
            "AND",
            {"filters[0].fieldValue": "100 names"},
        ),
        (
            [{"type": "group", "filters": [GOOD, GOOD], "colour": 1}],
            "AND",
            {"filters[0].colour": "a group has type, connector, filters"},
        ),
        ([{**GOOD, "x" * 65: 1}], "AND", {"filters[0]." + "x" * 64: "a filter has fieldName"}),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(
    filters: list[Any], connector: str, problems: dict[str, str]
) -> None:
    found = filter_problems(json.dumps(filters), connector)
    assert [problem.field for problem in found] == list(problems)
    for problem in found:
        assert problems[problem.field] in problem.reason
    with pytest.raises(Invalid):
        read_filters(json.dumps(filters), connector)


@pytest.mark.parametrize(
    "filters",
    [
        pytest.param([GOOD] * 50, id="50 filters"),
        pytest.param([{"type": "group", "filters": [GOOD] * 5}] * 10, id="10 groups of 5"),
        pytest.param([{"type": "group", "filters": [GOOD] * 2}], id="a group of 2"),
        pytest.param([{**GOOD, "fieldName": "a" * 256}], id="a name of 256 characters"),
        pytest.param([{**GOOD, "fieldName": "a" + ".a" * 15}], id="16 names deep"),
        pytest.param([{**GOOD, "fieldValue": [1] * 100}], id="100 items"),
        pytest.param([{**GOOD, "fieldValue": {str(n): 1 for n in range(100)}}], id="100 names"),
        pytest.param([{**GOOD, "fieldValue": [[[[[[[1]]]]]]]}], id="8 deep"),
        pytest.param([{**GOOD, "fieldValue": {}, "comparison": "ne"}], id="an empty object"),
        pytest.param([{"field": "data", "value": None}], id="null"),
    ],
)
def test_what_is_at_the_limit_is_taken(filters: list[Any]) -> None:
    assert filter_problems(json.dumps(filters), "AND") == ()
    assert len(read_filters(json.dumps(filters)).parts) == len(filters)


def test_the_limit_counts_bytes() -> None:
    empty = len(json.dumps([{**GOOD, "fieldValue": ""}]))
    for letter, size in (("x", 1), ("ü", 2), ("例", 3)):
        count, rest = divmod(32 * 1024 - empty, size)
        text = json.dumps([{**GOOD, "fieldValue": letter * count + "x" * rest}], ensure_ascii=False)
        assert len(text.encode()) == 32 * 1024
        assert filter_problems(text, "AND") == ()
        assert [it.field for it in filter_problems(text + " ", "AND")] == ["filters"]
