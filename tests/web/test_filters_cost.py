"""Expensive filters at every way in: refused when new, kept when stored, tried in slices."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec

from homing.policy.admission import draft_of
from homing.web.workfront.api import BASE
from web.house import URL, House, live

LIST = {"field": "data.a", "op": "containsOnly", "value": list(range(100))}
DEAR = [{**LIST, "value": [*range(99), number]} for number in range(11)]
REASON = "must compare at most 1,000 values in all, these compare 1,100"
SEARCH = [
    {"field": "data.list", "op": "notContains", "value": {"a": 1, "b": -number}}
    for number in range(1, 21)
]
LONG = {"list": [{"a": 1, "b": number} for number in range(1_000)]}


def test_new_filters_that_cost_too_much_are_refused_with_what_to_do() -> None:
    async def story(house: House) -> None:
        new = {"url": URL, "types": ["*"], "filters": DEAR}
        made = await house.subscribe(filters=[LIST])
        project = {"objCode": "PROJ", "eventType": "UPDATE", "url": URL, "authToken": "t" * 20}
        client = house.client
        for got, status in (
            (await client.post("/v1/subscriptions", new), 422),
            (await client.patch(f"/v1/subscriptions/{made['id']}", {"filters": DEAR}), 422),
            (await client.post("/v1/filters/try", {"filters": DEAR, "data": {}}), 422),
            (await client.post(BASE, {**project, "filters": DEAR}), 400),
        ):
            assert got.status == status, got.body
            assert REASON in got.body.decode()
            assert "several subscriptions" in got.body.decode()

    live(story)


def test_a_subscription_with_stored_filters_beyond_the_limit_can_be_changed() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(filters=[LIST])
        (one,) = house.world.engine._core.catalog._by_id.values()
        old = msgspec.structs.replace(draft_of(one), filters=json.dumps(DEAR))
        await house.world.engine.change(one.id, lambda _: old)
        path = f"/v1/subscriptions/{made['id']}"
        got = await house.client.patch(path, {"description": "renamed"})
        assert got.status == 200, got.body
        assert got.json["filters"] == DEAR
        event = await house.publish(data={"a": [[1]]})
        told = (await house.client.get(f"/v1/events/{event}")).json
        assert "filters[0]" in told["unmatched"][0]["reason"]
        assert (await house.client.patch(path, {"filters": DEAR[:10]})).status == 200
        assert (await house.client.patch(path, {"filters": DEAR})).status == 422

    live(story)


def test_others_are_answered_while_filters_are_tried_or_explained() -> None:
    async def story(house: House) -> None:
        await house.subscribe(filters=[*SEARCH, {"field": "data.none", "op": "exists"}])
        event = await house.publish(data=LONG)
        ended: list[str] = []

        async def ask(name: str, **request: Any) -> Any:
            got = await (
                house.client.post("/v1/filters/try", request["body"])
                if "body" in request
                else house.client.get(f"/v1/events/{event}")
            )
            assert got.status == 200
            ended.append(name)
            return got.json

        tried = asyncio.ensure_future(ask("tried", body={"filters": SEARCH, "data": LONG}))
        explained = asyncio.ensure_future(ask("explained"))
        await asyncio.sleep(0)
        await house.publish(tenant="neighbour", data={})
        ended.append("neighbour")
        assert (await tried)["matches"] is True
        (reason,) = (await explained)["unmatched"]
        assert "data.none exists: no" in reason["reason"]
        assert ended[0] == "neighbour"

    live(story)


def test_numbers_of_filters_are_kept_and_compared_exactly() -> None:
    number = b"0.12345678901234567890"

    async def story(house: House) -> None:
        body = b'{"url":"%b","types":["*"],"filters":[{"field":"data.a","value":%b}]}'
        made = await house.client.call(
            "POST", "/v1/subscriptions", body=body % (URL.encode(), number)
        )
        assert made.status == 201, made.body
        path = f"/v1/subscriptions/{made.json['id']}"
        assert b'"value":' + number in (await house.client.get(path)).body
        tried = b'{"filters":[{"field":"data.a","value":%b}],"data":{"a":%b}}'
        for found, matches in ((number, True), (b"0.12345678901234568", False)):
            got = await house.client.call("POST", "/v1/filters/try", body=tried % (number, found))
            assert got.json["matches"] is matches, got.body
            assert b'"value":' + number in got.body
        for value in (b"1e400", b"-1e999999", b"1e99999999999999999999"):
            got = await house.client.call("POST", "/v1/filters/try", body=tried % (value, value))
            assert (got.status, got.fields) == (422, ["filters[0].value"]), got.body
        got = await house.client.call("POST", "/v1/filters/try", body=tried % (b"7" * 5_000, b"1"))
        assert got.status == 422, got.body

    live(story)
