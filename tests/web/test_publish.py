"""Publishing: one, many, by lines; what is accepted comes back byte for byte.

Promised: what-homing-promises.md#publishing.
"""

from __future__ import annotations

from typing import Any

import pytest

from web.house import House, live

LINES = (("content-type", "application/x-ndjson; charset=utf-8"),)
DATA = b'{ "b":1.50,  "a":[1e5,"\\u00e9\xc3\xa9\\ud83d\\ude00" ] , "a":12345678901234567890}'


def test_one_event_is_answered_with_its_id_and_the_number_of_its_deliveries() -> None:
    async def story(house: House) -> None:
        await house.subscribe()
        await house.subscribe("https://other.example/")
        got = await house.client.post("/v1/events", {"type": "a.b", "data": {}, "id": "k1"})
        assert got.status == 202
        assert got.json == {"events": [{"id": "k1", "deliveries": 2, "duplicate": False}]}
        made = await house.client.post("/v1/events", {"type": "a.b", "data": {}})
        assert made.json["events"][0]["id"].startswith("evt_")

    live(story)


def test_an_event_that_matches_nothing_is_kept() -> None:
    async def story(house: House) -> None:
        key = await house.publish(tenant="acme")
        got = await house.client.get(f"/v1/events/{key}?tenant=acme")
        assert (got.status, got.json["deliveries"]) == (200, [])

    live(story)


def test_data_is_kept_and_sent_byte_for_byte() -> None:
    async def story(house: House) -> None:
        await house.subscribe(format="raw")
        body = b'{"type":"a","id":"k","data":' + DATA + b" }"
        assert (await house.client.post("/v1/events", body=body)).status == 202
        await house.settled()
        assert house.world.sender.hits[0].body == DATA
        got = await house.client.get("/v1/events/k")
        assert DATA in got.body

    live(story)


def test_an_array_and_lines_are_batches() -> None:
    async def story(house: House) -> None:
        array = [{"type": "a", "data": n, "id": f"k{n}"} for n in range(3)]
        got = await house.client.post("/v1/events", array)
        assert [one["id"] for one in got.json["events"]] == ["k0", "k1", "k2"]
        body = b'{"type":"a","data":1,"id":"l1"}\r\n\n{"type":"a","data":2,"id":"l2"}'
        got = await house.client.post("/v1/events", body=body, headers=LINES)
        assert [one["id"] for one in got.json["events"]] == ["l1", "l2"]

    live(story)


def test_a_body_may_arrive_in_pieces() -> None:
    async def story(house: House) -> None:
        chunks = [b'{"type":', b"", b'"a","data":', b"1}"]
        got = await house.client.post("/v1/events", chunks=chunks)
        assert got.status == 202

    live(story)


def test_the_same_id_again_is_told_to_be_a_duplicate_and_another_content_gets_a_409() -> None:
    async def story(house: House) -> None:
        event = {"type": "a", "data": 1, "id": "k"}
        first = await house.client.post("/v1/events", event)
        await house.subscribe()
        again = await house.client.post("/v1/events", event)
        assert first.json["events"] == [{"id": "k", "deliveries": 0, "duplicate": False}]
        assert again.json["events"] == [{"id": "k", "deliveries": 0, "duplicate": True}]
        other = await house.client.post("/v1/events", [event | {"id": "new"}, event | {"data": 2}])
        assert (other.status, other.problem.code) == (409, "event_conflict")
        assert other.fields == ["events[1].id"]
        assert (await house.client.get("/v1/events/new")).status == 404

    live(story)


def test_the_same_id_twice_in_one_batch_is_one_event_or_a_conflict_that_names_both() -> None:
    async def story(house: House) -> None:
        event = {"type": "a", "data": 1, "id": "k"}
        got = await house.client.post("/v1/events", [event, {"type": "b", "data": 1}, event])
        assert [it["duplicate"] for it in got.json["events"]] == [False, False, True]
        first, _, third = got.json["events"]
        assert (first["id"], first["deliveries"]) == (third["id"], third["deliveries"])
        got = await house.client.post("/v1/events", [event, event])
        assert [it["duplicate"] for it in got.json["events"]] == [True, True]
        got = await house.client.post(
            "/v1/events", [event | {"id": "x"}, event | {"id": "x", "type": "c"}]
        )
        assert (got.status, got.fields) == (409, ["events[1].id"])
        assert "events[0]" in got.problem.problems[0].reason

    live(story)


def test_the_last_accepted_sizes_and_the_first_refused() -> None:
    async def story(house: House) -> None:
        mib = 1024 * 1024
        most = b'{"type":"a","data":"' + b"x" * (mib - 2) + b'"}'
        assert (await house.client.post("/v1/events", body=most)).status == 202
        over = b'{"type":"a","data":"' + b"x" * (mib - 1) + b'"}'
        got = await house.client.post("/v1/events", body=over)
        assert (got.status, got.fields) == (413, ["events[0].data"])
        batch = [{"type": "a", "data": 1}] * 1000
        assert len((await house.client.post("/v1/events", batch)).json["events"]) == 1000
        assert (await house.client.post("/v1/events", [*batch, batch[0]])).status == 413

    live(story)


def test_a_body_over_8_mib_is_refused_before_it_is_read() -> None:
    async def story(house: House) -> None:
        declared = (("content-length", str(8 * 1024 * 1024 + 1)),)
        got = await house.client.post("/v1/events", chunks=[b"{"], headers=declared)
        assert (got.status, got.headers["connection"]) == (413, "close")
        chunk = b" " * 1024 * 1024
        got = await house.client.post("/v1/events", chunks=[chunk] * 9)
        assert got.status == 413
        body = b'{"type":"a","data":1}'
        fits = [b" " * (8 * 1024 * 1024 - len(body)), body]
        assert (await house.client.post("/v1/events", chunks=fits)).status == 202

    live(story)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b"nonsense",
        b"\xef\xbb\xbf{}",
        b'{"type":"a","data":NaN}',
        b'{"type":"a","data":Infinity}',
        b'{"type":"a","data":01}',
        b'{"type":"a","data":"\xff"}',
        b'{"type":"a","data":"\xed\xa0\x80"}',
        b'{"type":"a","data":"\\ud800 and more"}',
        b'{"type":"a","data":"\\udc00"}',
        b'{"type":"a","data":["\\ud83d","\\ude00"]}',
        b'{"type":"a","data":"\n"}',
        b'{"type":"a","data":1}{"type":"a","data":1}',
        b'{"type":"a","data":1} x',
        b'[{"type":"a","data":1},]',
        b'[{"type":"a","data":1}',
    ],
)
def test_what_is_not_json_is_a_400_and_nothing_is_kept(body: bytes) -> None:
    async def story(house: House) -> None:
        got = await house.client.post("/v1/events", body=body)
        assert (got.status, got.problem.code) == (400, "bad_request")
        got = await house.client.post("/v1/events", body=b"[" + body + b"]")
        assert got.status in {400, 422}
        got = await house.client.get("/v1/events")
        assert got.json == {"items": [], "next_cursor": None}

    live(story)


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({"data": 1}, "events[0].type"),
        ({"type": "a"}, "events[0].data"),
        ({"type": 1, "data": 1}, "events[0].type"),
        ({"type": "a b", "data": 1}, "events[0].type"),
        ({"type": "homing.endpoint.frozen", "data": 1}, "events[0].type"),
        ({"type": "a", "data": 1, "id": "a.b"}, "events[0].id"),
        ({"type": "a", "data": 1, "id": 7}, "events[0].id"),
        ({"type": "a", "data": 1, "time": "now"}, "events[0].time"),
        ({"type": "a", "data": 1, "tenant": "a.b"}, "events[0].tenant"),
        ({"type": "a", "data": 1, "colour": 1}, "events[0].colour"),
        ("text", "events[0]"),
        (None, "events[0]"),
    ],
)
def test_a_wrong_field_is_a_422_that_names_it(event: Any, field: str) -> None:
    async def story(house: House) -> None:
        body = b"null" if event is None else None
        got = await house.client.post("/v1/events", event, body=body)
        assert (got.status, got.fields) == (422, [field])

    live(story)


def test_a_batch_names_each_bad_item_and_is_refused_whole() -> None:
    async def story(house: House) -> None:
        good = {"type": "a", "data": 1}
        batch = [good, {"type": "a"}, good, 7, {"type": "a", "data": 1, "x": 1}]
        got = await house.client.post("/v1/events", batch)
        assert got.status == 422
        assert got.fields == ["events[1].data", "events[3]", "events[4].x"]
        lines = b'{"type":"a","data":1}\nnot json\n\n{"type":"a"}\n'
        got = await house.client.post("/v1/events", body=lines, headers=LINES)
        assert (got.status, got.fields) == (400, ["events[1]", "events[2].data"])
        got = await house.client.post("/v1/events", [1] * 500)
        assert len(got.fields) == 100
        assert (await house.client.get("/v1/events")).json["items"] == []

    live(story)


def test_an_empty_batch_holds_no_event() -> None:
    async def story(house: House) -> None:
        for body, headers in ((b"[]", ()), (b"\n\n", LINES), (b"", LINES)):
            got = await house.client.post("/v1/events", body=body, headers=headers)
            assert (got.status, got.fields) == (422, ["events"])

    live(story)


def test_an_encoded_body_and_a_query_are_refused() -> None:
    async def story(house: House) -> None:
        headers = (("content-encoding", "gzip"),)
        got = await house.client.post("/v1/events", body=b"\x1f\x8b", headers=headers)
        assert got.status == 400
        got = await house.client.post("/v1/events?x=1", {"type": "a", "data": 1})
        assert (got.status, got.fields) == (422, ["x"])

    live(story)


def test_the_key_is_asked_for_before_the_body_is_looked_at() -> None:
    async def story(house: House) -> None:
        house.client.key = None
        got = await house.client.post("/v1/events", body=b"nonsense")
        assert got.status == 401

    live(story)


def test_a_content_length_that_is_no_number_is_a_400() -> None:
    async def story(house: House) -> None:
        headers = (("content-length", "many"),)
        got = await house.client.post("/v1/events", chunks=[b"{}"], headers=headers)
        assert got.status == 400

    live(story)
