"""What Adobe would refuse, ignore or never match, in words; the rest has no warning."""

from __future__ import annotations

import json
from typing import Any

import pytest

from homing.model import Format, SubscriptionSpec, Workfront
from homing.policy.workfront_objects import OBJECTS
from homing.policy.workfront_warnings import WARNINGS_MAX, workfront_warnings

NAME, COMPARISON = "filters[0].fieldName", "filters[0].comparison"


def spec(kind: str = "PROJ.UPDATE", filters: Any = (), **more: Any) -> SubscriptionSpec:
    given = {"format": Format.WORKFRONT, "token": "a-token", **more}
    types = given.pop("types", (kind,))
    return SubscriptionSpec(
        url="https://a.example/", types=types, filters=json.dumps(list(filters)), **given
    )


def a_filter(name: str, comparison: str = "eq", value: Any = "x", **more: Any) -> dict[str, Any]:
    return {"fieldName": name, "comparison": comparison, "fieldValue": value, **more}


def told(subscription: SubscriptionSpec, version: str = "v2") -> list[tuple[str, str]]:
    found = workfront_warnings(subscription, Workfront(version=version))
    return [(field, reason) for field, reason in found]


@pytest.mark.parametrize(
    ("kind", "one"),
    [
        ("PROJ.UPDATE", a_filter("status", "eq", "CUR", state="newState")),
        ("PROJ.UPDATE", a_filter("status", "eq", "PLN", state="oldState")),
        ("PROJ.UPDATE", a_filter("status", "changed")),
        ("PROJ.UPDATE", a_filter("parameterValues", "eq", {"DE:Region": "EMEA"})),
        ("PROJ.UPDATE", a_filter("newThingID", "eq", "1")),
        ("PROJ.UPDATE", a_filter("plannedCompletionDate", "gt", "2026-11-17T08:30:00.000-0700")),
        ("PROJ.CREATE", a_filter("name", "contains", "Launch")),
        ("TASK.DELETE", a_filter("projectID", "eq", "5e7", state="oldState")),
        ("USER.UPDATE", a_filter("userRoles", "changed")),
        ("DOCU.UPDATE", a_filter("name", "containsOnly", ["a", "b"])),
        ("RECORD.UPDATE", a_filter("recordTypeId", "eq", "5e7")),
        ("approval_stage.UPDATE", a_filter("anything", "eq", "1")),
    ],
)
def test_what_adobe_does_as_well_has_no_warning(kind: str, one: dict[str, Any]) -> None:
    group = {"type": "group", "connector": "OR", "filters": [one, one]}
    assert told(spec(kind, [one])) == told(spec(kind, [group])) == []


NEVER = "this filter never matches there"
FILTERS = [
    ("DOCU.UPDATE", a_filter("groups"), NAME, f"cannot filter DOCU by groups: {NEVER}"),
    ("RECORD.UPDATE", a_filter("data"), NAME, f"cannot filter RECORD by data: {NEVER}"),
    ("RECORD_TYPE.UPDATE", a_filter("data"), NAME, f"filter RECORD_TYPE by data: {NEVER}"),
    ("RECORD_TYPE.UPDATE", a_filter("fields"), NAME, f"filter RECORD_TYPE by fields: {NEVER}"),
    ("USER.UPDATE", a_filter("userRoles"), COMPARISON, "by changed only, not by eq"),
    ("USER.UPDATE", a_filter("userRoles", "contains"), COMPARISON, "not by contains"),
    ("PROJ.UPDATE", a_filter("status", "exists"), COMPARISON, f"no comparison exists: {NEVER}"),
    ("PROJ.UPDATE", a_filter("status", "notExists"), COMPARISON, "no comparison notExists"),
    ("PROJ.UPDATE", a_filter("stauts"), NAME, "fields of PROJ: did you mean status?"),
    ("PROJ.UPDATE", a_filter("Status"), NAME, "did you mean status?"),
    ("PROJ.UPDATE", a_filter("xyz"), NAME, "is not in Adobe's list of the fields of PROJ"),
    ("PROJ.UPDATE", a_filter("DE:Region"), NAME, "custom fields in parameterValues"),
    ("PROJ.UPDATE", a_filter("parameterValues.DE:Region"), NAME, "as an object in fieldValue"),
    ("PTLTAB.UPDATE", a_filter("lastUpdateDate", "changed"), NAME, "only once a day"),
    ("PROJ.CREATE", a_filter("status", "changed"), COMPARISON, "changed is for UPDATE"),
    ("PROJ.DELETE", a_filter("status", "changed"), COMPARISON, "a DELETE has one state only"),
    ("PROJ.DELETE", a_filter("status"), "filters[0].state", "deleted object in oldState"),
    (
        "PROJ.UPDATE",
        a_filter("entryDate", "gt", "2026-11-17T08:30:00Z"),
        "filters[0].fieldValue",
        "Adobe writes dates like 2026-11-17T08:30:00.000-0700",
    ),
    (
        "PROJ.UPDATE",
        {"field": "data.newState.status", "op": "eq", "value": "CUR"},
        "filters[0]",
        "has Homing's form",
    ),
]


@pytest.mark.parametrize(("kind", "one", "field", "reason"), FILTERS)
def test_a_filter_that_adobe_does_not_honour_is_named(
    kind: str, one: dict[str, Any], field: str, reason: str
) -> None:
    ((place, words),) = told(spec(kind, [one]))
    assert place == field
    assert reason in words


def test_a_filter_in_a_group_is_named_by_its_place() -> None:
    group = {"type": "group", "filters": [a_filter("status"), a_filter("groups")]}
    ((place, _),) = told(
        spec(
            "DOCU.UPDATE",
            [a_filter("name"), {**group, "filters": [a_filter("name"), a_filter("groups")]}],
        )
    )
    assert place == "filters[1].filters[1].fieldName"


V2_ONLY = [
    "approval",
    "approval_stage",
    "approval_stage_participant",
    "FIELD",
    "RECORD",
    "RECORD_TYPE",
    "WORKSPACE",
    "STAFFP",
    "STAFFR",
    "SPVAL",
    "SPAVAL",
    "SAVSET",
    "SRPVAL",
]


@pytest.mark.parametrize("code", V2_ONLY)
def test_an_object_that_needs_version_2_is_named_in_version_1(code: str) -> None:
    assert told(spec(f"{code}.UPDATE")) == []
    assert told(spec(f"{code}.UPDATE"), "v1") == [
        ("version", f"Adobe sends no events of {code} in v1: this object needs v2")
    ]


def test_version_1_ended_for_all_other_objects() -> None:
    others = OBJECTS.keys() - set(V2_ONLY)
    for code in others:
        ((field, words),) = told(spec(f"{code}.UPDATE"), "v1")
        assert (field, "January 2026" in words) == ("version", True)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("proj", "is not in Adobe's list of objects: did you mean PROJ?"),
        ("Approval", "is not in Adobe's list of objects: did you mean approval?"),
        ("OPTSK", "is not in Adobe's list of objects: did you mean OPTASK?"),
        ("QQQQ", "is not in Adobe's list of objects"),
    ],
)
def test_an_unknown_object_code_is_named(code: str, words: str) -> None:
    assert told(spec(f"{code}.UPDATE")) == [("objCode", words)]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"token": None}, "authToken"),
        ({"format": Format.STANDARD}, "format"),
        ({"headers": (("x-team", "billing"),)}, "headers"),
        ({"deadline_ms": 6_000}, "deadline_ms"),
        ({"rate_per_second": 5.0}, "rate_per_second"),
        ({"types": ("PROJ.UPDATE", "TASK.UPDATE")}, "types"),
    ],
)
def test_a_setting_that_adobe_does_not_have_is_named(more: dict[str, Any], field: str) -> None:
    assert [it for it, _ in told(spec(**more))] == [field]


def test_a_deadline_within_adobes_is_fine() -> None:
    assert told(spec(deadline_ms=5_000)) == []


def test_the_number_of_warnings_is_bounded() -> None:
    assert len(told(spec(filters=[a_filter(f"wrong{n}") for n in range(50)]))) == WARNINGS_MAX
