"""Samples of Workfront's events: all documented fields, and what Homing's own format sends."""

from __future__ import annotations

import base64
import json
from random import Random
from typing import Any

import pytest

from homing.errors import Invalid
from homing.policy.admission import is_type
from homing.policy.workfront_ids import read_uuid
from homing.policy.workfront_objects import OBJECTS
from homing.policy.workfront_sample import known_names, sample, sample_message

NOW = 1_794_900_000_123


def made(name: str, seed: int = 1, **more: Any) -> dict[str, Any]:
    return sample(name, Random(seed), now=NOW, **more).data


def test_every_object_with_a_public_list_of_fields_has_three_samples() -> None:
    names = known_names()
    assert len(names) == 3 * sum(bool(it.fields) for it in OBJECTS.values()) == 66
    assert {"PROJ.UPDATE", "TASK.CREATE", "OPTASK.DELETE", "RECORD_TYPE.UPDATE"} <= set(names)
    assert all(is_type(name) for name in names)


@pytest.mark.parametrize("name", known_names())
def test_a_sample_has_the_documented_fields_and_nothing_else(name: str) -> None:
    code, _, kind = name.rpartition(".")
    fields = set(OBJECTS[code].fields)
    for seed in range(5):
        data = made(name, seed)
        new, old = data["newState"], data["oldState"]
        assert (set(new) == fields) is (kind != "DELETE")
        assert (set(old) == fields) is (kind != "CREATE")
        for state in filter(None, (new, old)):
            assert state["objCode"] == code
            assert isinstance(state.get("ID", state.get("id", "")), str)
        if kind == "UPDATE":
            changed = {it for it in fields if new[it] != old[it]}
            assert 1 <= len(changed) <= 3
            assert not changed & {"ID", "id", "objCode", "customerID", "entryDate", "createdAt"}
        else:
            assert {} in (new, old)


def test_a_message_is_what_the_format_workfront_sends() -> None:
    it = sample("PROJ.UPDATE", Random(1), now=NOW)
    told = json.loads(sample_message(it, now=NOW))
    assert read_uuid(told.pop("subscriptionId")) is not None
    assert told == {
        "eventType": "UPDATE",
        "eventTime": {"epochSecond": NOW // 1000, "nano": 123_000_000},
        "eventVersion": "v2",
        "subscriptionVersion": "v2",
        "customerId": "default",
        **it.data,
    }
    assert told["newState"]["status"] == "CUR"
    assert told["oldState"]["status"] == "PLN"


def test_a_message_has_a_version_and_an_encoding() -> None:
    it = sample("TASK.CREATE", Random(1), now=NOW)
    old = json.loads(sample_message(it, now=NOW, version="v1"))
    assert old["newState"]["parameterValues"]["DE:Channels"] == "Web"
    encoded = json.loads(sample_message(it, now=NOW, base64=True))
    assert json.loads(base64.b64decode(encoded["newState"])) == it.data["newState"]
    assert base64.b64decode(encoded["oldState"]) == b"{}"


def test_a_seed_makes_the_same_sample_again() -> None:
    assert made("DOCU.UPDATE", 7) == made("DOCU.UPDATE", 7) != made("DOCU.UPDATE", 8)
    data = made("DOCU.UPDATE", user="anna")
    assert data["userId"] == data["newState"]["lastUpdatedByID"] == "anna"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("proj.updat", "Did you mean PROJ.UPDATE?"),
        ("PROJ", "Did you mean PROJ.UPDATE?"),
        ("OPTSK.DELETE", "Did you mean OPTASK.DELETE?"),
        ("TASK.SHARE", "Did you mean TASK.UPDATE?"),
        ("record-type.create", "Did you mean RECORD_TYPE.CREATE?"),
        ("STAFFP.UPDATE", "The codes with a public list of fields are PROJ, TASK,"),
        ("nonsense" * 50, "not 'nonsense"),
        ("", "must be an object code, a dot and CREATE, UPDATE or DELETE"),
    ],
)
def test_an_unknown_name_is_refused_with_the_names_that_are_known(name: str, words: str) -> None:
    with pytest.raises(Invalid) as caught:
        made(name)
    ((field, reason),) = caught.value.problems
    assert field == "NAME"
    assert words in reason
    assert len(reason) < 500
