"""A body carries the event's data byte for byte."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.model import Event, Format
from homing.policy.formats import body_writer
from policy.build import an_event

ODD = b'{"a": 1.10 ,\n "a":1e2,"\\u00e9":"\xc3\xa9"}'


def body(event: Event, fmt: Format) -> tuple[bytes, bytes]:
    write, content_type = body_writer(fmt)
    return write(event), content_type


def test_standard_is_the_payload_of_standard_webhooks() -> None:
    assert body(an_event(data=ODD), Format.STANDARD) == (
        b'{"id":"evt_1","type":"order.paid","timestamp":"2026-11-12T14:00:00Z","data":'
        + ODD
        + b"}",
        b"application/json",
    )


def test_raw_is_the_data_alone() -> None:
    assert body(an_event(data=ODD), Format.RAW) == (ODD, b"application/json")


def test_cloudevents_is_structured_1_0() -> None:
    content, content_type = body(an_event(), Format.CLOUDEVENTS)
    assert content_type == b"application/cloudevents+json"
    assert json.loads(content) == {
        "specversion": "1.0",
        "id": "evt_1",
        "source": "urn:homing:acme",
        "type": "order.paid",
        "time": "2026-11-12T14:00:00Z",
        "datacontenttype": "application/json",
        "data": {"amount": 1.1},
    }


def test_a_tenant_becomes_part_of_a_valid_source() -> None:
    content, _ = body(an_event(tenant="a b/ü"), Format.CLOUDEVENTS)
    assert json.loads(content)["source"] == "urn:homing:a%20b%2F%C3%BC"


@pytest.mark.parametrize("data", [b"null", b"1", b'"text"', b"[]", b"{}", ODD])
@pytest.mark.parametrize("fmt", [Format.STANDARD, Format.RAW, Format.CLOUDEVENTS])
def test_any_json_value_is_carried_as_it_is(fmt: Format, data: bytes) -> None:
    content, _ = body(an_event(data=data), fmt)
    assert data in content
    json.loads(content)


@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1),
    st.sampled_from([Format.STANDARD, Format.CLOUDEVENTS]),
)
def test_any_id_is_escaped(key: str, fmt: Format) -> None:
    content, _ = body(an_event(key=key), fmt)
    assert json.loads(content)["id"] == key
