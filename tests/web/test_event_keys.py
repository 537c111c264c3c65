"""The key of an event: given in every form of a publish, stored, shown, and sent to receivers."""

from __future__ import annotations

import json

import pytest

from web.browse import Browser, text
from web.house import House, live
from web.test_cloudevents import BATCHED, ONE, STRUCTURED, body_of, read
from web.test_publish import LINES

KEYED = {"type": "a.b", "data": {}, "id": "k1", "key": "order/17 of Jürgen"}
SENT = "order/17%20of%20J%C3%BCrgen"


@pytest.mark.parametrize("form", ["one", "batch", "lines"])
def test_a_key_is_stored_shown_and_sent(form: str) -> None:
    async def story(house: House) -> None:
        await house.subscribe()
        if form == "lines":
            body = json.dumps(KEYED).encode() + b"\n"
            got = await house.client.post("/v1/events", body=body, headers=LINES)
        else:
            got = await house.client.post("/v1/events", [KEYED] if form == "batch" else KEYED)
        assert got.status == 202
        await house.settled()
        (hit,) = house.world.sender.hits
        assert hit.headers["homing-key"] == SENT
        shown = await house.client.get("/v1/events/k1")
        assert shown.json["key"] == KEYED["key"]
        listed = await house.client.get("/v1/events")
        assert [one["key"] for one in listed.json["items"]] == [KEYED["key"]]

    live(story)


def test_an_event_without_a_key_has_no_such_header() -> None:
    async def story(house: House) -> None:
        await house.subscribe()
        await house.client.post("/v1/events", {"type": "a", "data": 1, "id": "k"})
        await house.settled()
        assert "homing-key" not in house.world.sender.hits[0].headers
        assert (await house.client.get("/v1/events/k")).json["key"] is None

    live(story)


@pytest.mark.parametrize(
    "key", ["", "x" * 129, "ü" * 65, " x", "x ", "a\tb", "a\nb", "\u2028"], ids=repr
)
def test_a_bad_key_is_refused_with_its_field_and_the_rule(key: str) -> None:
    async def story(house: House) -> None:
        got = await house.client.post("/v1/events", [{"type": "a", "data": 1, "key": key}])
        assert got.status == 422
        (problem,) = got.problem.problems
        assert problem.field == "events[0].key"
        assert "1 to 128 bytes of printable text" in problem.reason

    live(story)


def test_a_repeated_id_with_another_key_is_a_conflict() -> None:
    async def story(house: House) -> None:
        first = await house.client.post("/v1/events", KEYED)
        again = await house.client.post("/v1/events", KEYED)
        assert (first.status, again.json["events"][0]["duplicate"]) == (202, True)
        for other in ({**KEYED, "key": "order/18"}, {k: v for k, v in KEYED.items() if k != "key"}):
            assert (await house.client.post("/v1/events", other)).status == 409
            assert (await house.client.post("/v1/events", [KEYED, other])).status == 409

    live(story)


def test_the_partition_key_of_a_cloudevent_is_its_key() -> None:
    async def story(house: House) -> None:
        await house.subscribe(format="cloudevents")
        event = ONE | {"partitionkey": "order/17"}
        got = await house.client.post("/v1/events", body=body_of(event), headers=STRUCTURED)
        assert got.status == 202
        await house.settled()
        (hit,) = house.world.sender.hits
        assert hit.headers["homing-key"] == "order/17"
        assert read(hit).get_extension("partitionkey") == "order/17"
        shown = (await house.client.get(f"/v1/events/{ONE['id']}")).json
        assert shown["key"] == "order/17"
        assert "partitionkey" not in shown["context"]

    live(story)


def test_a_bad_partition_key_is_refused() -> None:
    async def story(house: House) -> None:
        event = ONE | {"partitionkey": "x" * 129}
        body = b"[" + body_of(event) + b"]"
        got = await house.client.post("/v1/events", body=body, headers=BATCHED)
        assert got.status == 422
        assert got.problem.problems[0].field == "events[0].partitionkey"

    live(story)


def test_the_dashboard_shows_the_key() -> None:
    async def story(house: House) -> None:
        await house.client.post("/v1/events", KEYED)
        browser = Browser(house.app)
        await browser.sign_in()
        page = await browser.get("/events/default/k1")
        assert str(KEYED["key"]) in text(page)

    live(story)
