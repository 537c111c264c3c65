"""Format ``workfront``: the documented message, both versions, base64."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest
from msgspec.structs import replace

from homing.model import Format, Workfront, show_id
from homing.policy.formats import body_writer
from homing.policy.workfront import COLLAPSE_MAX, collapse, frame_of
from homing.policy.workfront_ids import show_uuid
from policy.build import a_subscription, an_event

NEW = b'{"ID":"5e7", "objCode":"PROJ","n":1.10,"sizes":["S"],"parameterValues":{"DE:X":["a"]}}'
OLD = b'{"ID":"5e7"}'
DATA = b'{"newState": %s ,"oldState":%s}' % (NEW, OLD)


def written(data: bytes, own: Workfront | None = None, **more: Any) -> bytes:
    subscription = replace(a_subscription(), id=7, format=Format.WORKFRONT, workfront=own)
    event = an_event(**{"type": "PROJ.UPDATE", "data": data, **more})
    write, kind = body_writer(Format.WORKFRONT, frame_of(subscription))
    assert kind == b"application/json"
    return write(event)


def test_the_message_has_the_documented_fields_and_the_states_byte_for_byte() -> None:
    content = written(DATA, time="2017-10-06T19:48:56.998Z")
    assert NEW in content
    assert json.loads(content) == {
        "eventType": "UPDATE",
        "subscriptionId": show_id("sub", 7),
        "eventTime": {"epochSecond": 1507319336, "nano": 998000000},
        "eventVersion": "v2",
        "subscriptionVersion": "v2",
        "customerId": "acme",
        "newState": json.loads(NEW),
        "oldState": json.loads(OLD),
    }


@pytest.mark.parametrize(
    ("time", "second", "nano"),
    [
        ("2026-11-12T14:00:00Z", 1794492000, 0),
        ("2026-11-12T15:00:00.5+01:00", 1794492000, 500_000_000),
        ("2026-11-12T14:00:00.12345678901234567890Z", 1794492000, 123_456_789),
        ("1969-12-31T23:59:59.25Z", -1, 250_000_000),
    ],
)
def test_the_time_is_in_seconds_and_nanoseconds(time: str, second: int, nano: int) -> None:
    told = json.loads(written(DATA, time=time))["eventTime"]
    assert told == {"epochSecond": second, "nano": nano}


@pytest.mark.parametrize(
    "data", [b"{}", b'{"newState":null}', b"1", b"[]", b"null", b'{"oldState":{},"x":1e999}']
)
def test_a_missing_side_is_an_empty_object(data: bytes) -> None:
    told = json.loads(written(data))
    assert (told["newState"], told["oldState"]) == ({}, {})


def test_who_did_it_is_passed_on() -> None:
    assert json.loads(written(b'{"userId":"u1"}'))["userId"] == "u1"


def test_base64_encodes_the_states_and_nothing_else() -> None:
    told = json.loads(written(DATA, Workfront(base64=True)))
    assert b64decode(told["newState"]) == NEW
    assert b64decode(told["oldState"]) == OLD
    assert told["eventType"] == "UPDATE"


def test_v1_turns_a_list_of_one_text_into_that_text() -> None:
    told = json.loads(written(DATA, Workfront(version="v1")))
    assert told["subscriptionVersion"] == told["eventVersion"] == "v1"
    assert told["newState"]["sizes"] == "S"
    assert told["newState"]["parameterValues"] == {"DE:X": "a"}


@pytest.mark.parametrize("value", [["a", "b"], [], [1], [{"a": "b"}], "a", None, [["a"]]])
def test_other_lists_stay_lists_in_v1(value: Any) -> None:
    text = json.dumps({"x": value}).encode()
    assert collapse(text) == text


def test_a_twin_speaks_for_the_other() -> None:
    told = json.loads(written(DATA, Workfront(version="v1", twin_of=9)))
    assert told["subscriptionId"] == show_uuid(9)


def test_a_state_of_very_many_lists_is_left_as_it_is() -> None:
    """Reading it would hold the event loop."""

    def state(lists: int) -> bytes:
        return b"{" + b",".join(b'"f%d":["x"]' % n for n in range(lists)) + b"}"

    assert collapse(state(COLLAPSE_MAX - 1)) == state(COLLAPSE_MAX - 1).replace(b"[", b"").replace(
        b"]", b""
    )
    assert collapse(state(COLLAPSE_MAX)) == state(COLLAPSE_MAX)
    escaped = b'{"a":["x"],"b":"' + b'\\"' * 8 * COLLAPSE_MAX + b'"}'
    assert collapse(escaped) == escaped
