"""CloudEvents: published in three modes, sent in two, and read by the CloudEvents SDK."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cloudevents.core.bindings.http import (
    HTTPMessage,
    from_http_event,
    to_binary_event,
    to_structured_event,
)
from cloudevents.core.v1.event import CloudEvent

from engine.world import Hit
from web.house import House, live

STRUCTURED = (("content-type", "application/cloudevents+json; charset=UTF-8"),)
BATCHED = (("content-type", "application/cloudevents-batch+json"),)
DATA = b'{ "b":1.50,  "a":[1e5,"\\u00e9\xc3\xa9" ] , "a":12345678901234567890}'
ONE: dict[str, Any] = {
    "specversion": "1.0",
    "id": "A234-1234-1234",
    "source": "https://shop.example/orders",
    "type": "com.example.order.paid",
}
FULL: dict[str, Any] = ONE | {
    "time": "2026-11-12T14:00:00Z",
    "subject": 'Grüße 100% "you"',
    "dataschema": "https://shop.example/schema.json",
    "datacontenttype": "application/json",
    "comexampleextension1": "value",
    "comexampleothervalue": 5,
    "sampled": True,
}


def body_of(event: dict[str, Any], data: bytes = DATA) -> bytes:
    return json.dumps(event).encode()[:-1] + b',"data":' + data + b"}"


def read(hit: Hit) -> Any:
    """The request as the SDK of CloudEvents reads it."""
    return from_http_event(HTTPMessage(headers=hit.headers, body=hit.body))


async def hits_of(house: House) -> list[Hit]:
    await house.settled()
    return house.world.sender.hits


@pytest.mark.parametrize("format_", ["cloudevents", "cloudevents-binary"])
def test_every_attribute_of_a_structured_event_reaches_the_receiver(format_: str) -> None:
    async def story(house: House) -> None:
        await house.subscribe(format=format_)
        got = await house.client.post("/v1/events", body=body_of(FULL), headers=STRUCTURED)
        assert (got.status, got.json["events"][0]["id"]) == (202, ONE["id"])
        (hit,) = await hits_of(house)
        event = read(hit)
        assert event.get_id() == FULL["id"]
        assert event.get_source() == FULL["source"]
        assert event.get_type() == FULL["type"]
        assert event.get_subject() == FULL["subject"]
        assert event.get_dataschema() == FULL["dataschema"]
        assert event.get_time().isoformat() == "2026-11-12T14:00:00+00:00"
        assert event.get_extension("comexampleextension1") == "value"
        assert str(event.get_extension("comexampleothervalue")) == "5"
        assert str(event.get_extension("sampled")).lower() == "true"
        assert event.get_data() == json.loads(DATA)
        assert DATA in hit.body

    live(story)


def test_binary_mode_has_the_data_alone_and_percent_encoded_headers() -> None:
    async def story(house: House) -> None:
        await house.subscribe(format="cloudevents-binary")
        await house.client.post("/v1/events", body=body_of(FULL), headers=STRUCTURED)
        (hit,) = await hits_of(house)
        assert hit.body == DATA
        assert hit.headers["content-type"] == "application/json"
        assert hit.headers["ce-subject"] == "Gr%C3%BC%C3%9Fe%20100%25%20%22you%22"
        assert hit.headers["ce-specversion"] == "1.0"

    live(story)


@pytest.mark.parametrize("format_", ["cloudevents", "cloudevents-binary"])
def test_an_event_that_was_no_cloudevent_has_its_tenant_as_source(format_: str) -> None:
    async def story(house: House) -> None:
        await house.subscribe(format=format_)
        await house.client.post("/v1/events", {"type": "a.b", "data": {"n": 1}, "id": "k1"})
        (hit,) = await hits_of(house)
        event = read(hit)
        assert (event.get_id(), event.get_source()) == ("k1", "urn:homing:default")
        assert event.get_data() == {"n": 1}

    live(story)


@pytest.mark.parametrize("mode", [to_structured_event, to_binary_event])
@pytest.mark.parametrize("format_", ["cloudevents", "cloudevents-binary"])
@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("application/json", {"n": 1}),
        ("application/vnd.shop+json", [1, 2]),
        ("text/xml", "<a>ü</a>"),
        ("image/png", b"\x89PNG\xff\x00"),
    ],
)
def test_what_the_sdk_sends_is_what_the_sdk_receives(
    mode: Any, format_: str, kind: str, data: Any
) -> None:
    async def story(house: House) -> None:
        await house.subscribe(format=format_)
        sent = CloudEvent(ONE | {"datacontenttype": kind, "subject": "a b"}, data)
        message = mode(sent)
        headers = tuple((name.lower(), value) for name, value in message.headers.items())
        got = await house.client.post("/v1/events", body=message.body, headers=headers)
        assert got.status == 202, got.body
        (hit,) = await hits_of(house)
        event = read(hit)
        assert event.get_datacontenttype() == kind
        assert event.get_data() == data
        assert (event.get_id(), event.get_subject()) == (ONE["id"], "a b")

    live(story)


def test_a_batch_is_accepted_whole_or_refused_whole_with_every_problem() -> None:
    async def story(house: House) -> None:
        batch = [ONE | {"id": f"k{n}", "data": n} for n in range(3)]
        got = await house.client.post("/v1/events", batch, headers=BATCHED)
        assert [it["id"] for it in got.json["events"]] == ["k0", "k1", "k2"]
        bad = [batch[0] | {"id": "new"}, {"specversion": "0.3"}, ONE | {"Bad_Name": 1}]
        got = await house.client.post("/v1/events", bad, headers=BATCHED)
        assert got.status == 422
        assert set(got.fields) == {
            "events[1].id",
            "events[1].source",
            "events[1].type",
            "events[1].specversion",
            "events[2].extensions",
        }
        assert (await house.client.get("/v1/events/new")).status == 404

    live(story)


@pytest.mark.parametrize("id_", ["a.b", "partition:0/offset 7", "ü", "x" * 200])
def test_an_id_that_homing_cannot_use_is_replaced_and_still_sent(id_: str) -> None:
    async def story(house: House) -> None:
        await house.subscribe(format="cloudevents")
        event = ONE | {"id": id_, "data": 1}
        got = await house.client.post("/v1/events", event, headers=STRUCTURED)
        made = got.json["events"][0]["id"]
        assert made.startswith("ce_")
        again = await house.client.post("/v1/events", event, headers=STRUCTURED)
        assert again.json["events"] == [{"id": made, "deliveries": 1, "duplicate": True}]
        other = event | {"source": "/other"}
        got = await house.client.post("/v1/events", other, headers=STRUCTURED)
        assert got.json["events"][0]["id"] != made
        assert read((await hits_of(house))[0]).get_id() == id_

    live(story)


def test_the_same_id_from_another_source_is_a_conflict() -> None:
    async def story(house: House) -> None:
        await house.client.post("/v1/events", ONE, headers=STRUCTURED)
        shuffled = dict(reversed(ONE.items()))
        again = await house.client.post("/v1/events", shuffled, headers=STRUCTURED)
        assert again.json["events"][0]["duplicate"]
        got = await house.client.post("/v1/events", ONE | {"source": "/b"}, headers=STRUCTURED)
        assert (got.status, got.problem.code) == (409, "event_conflict")
        both = [ONE | {"id": "k"}, ONE | {"id": "k", "source": "/b"}]
        got = await house.client.post("/v1/events", both, headers=BATCHED)
        assert (got.status, got.fields) == (409, ["events[1].id"])

    live(story)


def test_an_event_shows_the_attributes_that_it_came_with() -> None:
    async def story(house: House) -> None:
        await house.client.post("/v1/events", body=body_of(FULL), headers=STRUCTURED)
        got = await house.client.get(f"/v1/events/{ONE['id']}")
        own = {"specversion", "id", "type", "time"}
        assert got.json["context"] == {k: v for k, v in FULL.items() if k not in own}
        await house.client.post("/v1/events", {"type": "a", "data": 1, "id": "plain"})
        assert (await house.client.get("/v1/events/plain")).json["context"] is None

    live(story)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"specversion": "0.3"}, "specversion"),
        ({"source": ""}, "source"),
        ({"source": "a\u0000b"}, "source"),
        ({"id": 7}, "id"),
        ({"type": "com/example"}, "type"),
        ({"type": "homing.endpoint.frozen"}, "type"),
        ({"time": "yesterday"}, "time"),
        ({"subject": "x" * 1_025}, "subject"),
        ({"datacontenttype": "json\r\nx: y"}, "datacontenttype"),
        ({"extension1": {"a": 1}}, "extension1"),
        ({"extension1": 2**31}, "extension1"),
        ({"extension1": 1.5}, "extension1"),
        ({"data": 1, "data_base64": "AA=="}, "data_base64"),
        ({"data_base64": "not base64"}, "data_base64"),
        ({"data_base64": 1}, "data_base64"),
        ({"homingtenant": "a b"}, "tenant"),
        ({f"x{n}": 1 for n in range(33)}, ""),
        ({f"x{n}": "y" * 1_000 for n in range(5)}, ""),
    ],
)
def test_a_wrong_attribute_is_refused_and_named(change: dict[str, Any], field: str) -> None:
    async def story(house: House) -> None:
        got = await house.client.post("/v1/events", ONE | change, headers=STRUCTURED)
        assert got.status == 422
        assert got.fields == [f"events[0].{field}".rstrip(".")]

    live(story)


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (STRUCTURED, b"{"),
        (BATCHED, b"{}"),
        (BATCHED, b'[{"a":]'),
        ((("content-type", "application/cloudevents+avro"),), b"x"),
        ((("content-type", "application/json"), ("ce-specversion", "1.0")), b"{"),
    ],
)
def test_a_body_that_cannot_be_read_gets_a_400(headers: Any, body: bytes) -> None:
    async def story(house: House) -> None:
        assert (await house.client.post("/v1/events", body=body, headers=headers)).status == 400

    live(story)


def test_data_over_a_mebibyte_gets_a_413_in_every_mode() -> None:
    async def story(house: House) -> None:
        large = "x" * (1024 * 1024)
        for event in (ONE | {"data": large}, ONE | {"data_base64": large}):
            got = await house.client.post("/v1/events", event, headers=STRUCTURED)
            assert (got.status, got.fields) == (413, ["events[0].data"])
        headers = tuple((f"ce-{name}", value) for name, value in ONE.items())
        got = await house.client.post(
            "/v1/events", body=b'"' + large.encode() + b'"', headers=headers
        )
        assert got.status == 413

    live(story)


def test_a_key_of_the_operator_names_the_tenant_in_an_extension() -> None:
    async def story(house: House) -> None:
        event = ONE | {"homingtenant": "acme"}
        got = await house.client.post("/v1/events", event, headers=STRUCTURED)
        assert got.status == 202
        got = await house.client.get(f"/v1/events/{ONE['id']}?tenant=acme")
        assert got.json["context"] == {"source": ONE["source"]}

    live(story)


def test_an_event_without_data_has_null() -> None:
    async def story(house: House) -> None:
        await house.subscribe(format="raw")
        await house.client.post("/v1/events", ONE, headers=STRUCTURED)
        headers = tuple((f"ce-{name}", str(value)) for name, value in (ONE | {"id": "b"}).items())
        await house.client.post("/v1/events", body=b"", headers=headers)
        assert [hit.body for hit in await hits_of(house)] == [b"null", b"null"]

    live(story)


def test_other_formats_carry_base64_as_a_string() -> None:
    async def story(house: House) -> None:
        await house.subscribe(format="raw")
        text = base64.b64encode(b"\x00\xff").decode()
        await house.client.post("/v1/events", ONE | {"data_base64": text}, headers=STRUCTURED)
        (hit,) = await hits_of(house)
        assert json.loads(hit.body) == text

    live(story)


def test_headers_of_attributes_are_refused_only_in_binary_mode() -> None:
    async def story(house: House) -> None:
        draft = {"url": "https://a.example/", "types": ["*"], "headers": {"Ce-Id": "1"}}
        got = await house.client.post("/v1/subscriptions", draft)
        assert got.status == 201
        draft["format"] = "cloudevents-binary"
        got = await house.client.post("/v1/subscriptions", draft)
        assert (got.status, got.fields) == (422, ["headers.Ce-Id"])

    live(story)
