"""Filters over HTTP: given, refused, changed in place, tried; why an event did not match."""

from __future__ import annotations

from typing import Any

import pytest

from web.house import URL, House, live

OVER = {"field": "data.amount", "op": "gt", "value": 100}
PAID = {"field": "data.paid", "value": True}
MOVED = {"fieldName": "status", "fieldValue": "CUR", "comparison": "eq", "state": "newState"}
GROUP = {"type": "group", "connector": "OR", "filters": [OVER, PAID]}


def test_filters_are_shown_as_they_were_given() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(filters=[GROUP, MOVED], filterConnector="OR")
        assert made["filters"] == [GROUP, MOVED]
        assert made["filterConnector"] == "OR"
        plain = await house.subscribe("https://other.example/")
        assert (plain["filters"], plain["filterConnector"]) == ([], "AND")
        assert plain["workfront"] is None

    live(story)


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"filters": [{"field": "amount", "value": 1}]}, ["filters[0].field"]),
        ({"filters": [OVER, {**OVER, "op": "like"}]}, ["filters[1].op"]),
        (
            {"filters": [{**GROUP, "filters": [OVER, {**OVER, "value": None}]}]},
            ["filters[0].filters[1].value"],
        ),
        ({"filters": {"field": "data"}}, ["filters"]),
        ({"filters": [1]}, ["filters[0]"]),
        ({"filters": [OVER], "filterConnector": "XOR"}, ["filterConnector"]),
    ],
)
def test_a_bad_filter_is_refused_with_its_place(changes: dict[str, Any], fields: list[str]) -> None:
    async def story(house: House) -> None:
        got = await house.client.post("/v1/subscriptions", {"url": URL, "types": ["*"], **changes})
        assert (got.status, got.fields) == (422, fields)
        made = await house.subscribe(filters=[OVER])
        got = await house.client.patch(f"/v1/subscriptions/{made['id']}", changes)
        assert (got.status, got.fields) == (422, fields)
        kept = (await house.client.get(f"/v1/subscriptions/{made['id']}")).json
        assert kept["filters"] == [OVER]

    live(story)


def test_filters_are_changed_in_place() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(filters=[OVER, PAID], filterConnector="OR")
        path = f"/v1/subscriptions/{made['id']}"
        await house.publish(data={"amount": 101})
        kept = (await house.client.patch(path, {"description": "x"})).json
        assert (kept["filters"], kept["filterConnector"]) == ([OVER, PAID], "OR")
        changed = (await house.client.patch(path, {"filters": [PAID]})).json
        assert (changed["filters"], changed["filterConnector"]) == ([PAID], "OR")
        await house.publish(data={"amount": 101})
        bare = (await house.client.patch(path, {"filters": None, "filterConnector": None})).json
        assert (bare["filters"], bare["filterConnector"]) == ([], "AND")
        await house.publish(data={"amount": 101})
        assert len(await house.deliveries()) == 2

    live(story)


def test_filters_are_tried_on_given_data() -> None:
    async def story(house: House) -> None:
        got = await house.client.post(
            "/v1/filters/try", {"filters": [PAID, OVER], "data": {"amount": 99, "paid": True}}
        )
        assert got.status == 200
        assert got.json["matches"] is False
        assert got.json["event"] is None
        assert got.json["sentence"] == (
            "It does not match: filters[1]: data.amount is greater than 100: no, it is 99."
        )
        assert [(one["at"], one["holds"], one["decided"]) for one in got.json["conditions"]] == [
            ("filters[0]", True, False),
            ("filters[1]", False, True),
        ]
        either = {"filters": [PAID, OVER], "filterConnector": "OR", "data": {"paid": True}}
        assert (await house.client.post("/v1/filters/try", either)).json["matches"] is True
        nothing = await house.client.post("/v1/filters/try", {"filters": [PAID], "data": None})
        assert nothing.json["matches"] is False

    live(story)


def test_filters_are_tried_on_an_event_or_the_newest() -> None:
    async def story(house: House) -> None:
        got = await house.client.post("/v1/filters/try", {"filters": [OVER]})
        assert got.status == 404
        first = await house.publish(type="order.paid", data={"amount": 1})
        second = await house.publish(type="a.b", data={"amount": 1000})
        right: list[tuple[dict[str, Any], str, bool]] = [
            ({}, second, True),
            ({"event": first}, first, False),
            ({"type": "order.paid"}, first, False),
        ]
        for on, event, matches in right:
            got = await house.client.post("/v1/filters/try", {"filters": [OVER], **on})
            assert (got.json["event"], got.json["matches"]) == (event, matches)
        wrong: list[tuple[dict[str, Any], int]] = [
            ({"event": "unknown"}, 404),
            ({"event": "not.a.key"}, 404),
            ({"type": "other.type"}, 404),
            ({"type": "not a type"}, 422),
            ({"data": 1, "event": first}, 422),
        ]
        for on, status in wrong:
            got = await house.client.post("/v1/filters/try", {"filters": [OVER], **on})
            assert got.status == status, on
        other = await house.client.post(
            "/v1/filters/try?tenant=other", {"filters": [OVER], "event": first}
        )
        assert other.status == 404
        bad = await house.client.post("/v1/filters/try", {"filters": [{"field": "x"}], "data": 1})
        assert (bad.status, bad.fields) == (422, ["filters[0].field"])

    live(story)


def test_an_event_says_why_each_subscription_did_not_get_it() -> None:
    async def story(house: House) -> None:
        got_it = await house.subscribe("https://gets.example/")
        types = await house.subscribe("https://types.example/", types=["order.*"])
        filtered = await house.subscribe("https://filtered.example/", filters=[PAID, OVER])
        asleep = await house.subscribe("https://asleep.example/", active=False)
        changed = await house.subscribe("https://changed.example/", filters=[OVER])
        await house.subscribe("https://stranger.example/", tenant="other", filters=[OVER])
        await house.world.wait(10)
        event = await house.publish(data={"amount": 5, "paid": True})
        await house.world.wait(10)
        await house.client.patch(f"/v1/subscriptions/{changed['id']}", {"filters": []})
        late = await house.subscribe("https://late.example/")
        told = (await house.client.get(f"/v1/events/{event}")).json
        assert [one["subscription"] for one in told["deliveries"]] == [got_it["id"]]
        assert {one["subscription"]: one["reason"] for one in told["unmatched"]} == {
            types["id"]: "Its types do not match a.b.",
            filtered["id"]: (
                "It does not match: filters[1]: data.amount is greater than 100: no, it is 5."
            ),
            asleep["id"]: "It is not active.",
            changed["id"]: (
                "It was changed after the event was accepted; as it is now, it would match."
            ),
            late["id"]: "It was created after the event was accepted.",
        }
        assert told["unmatched_more"] is False

    live(story)


def test_an_event_that_matches_nothing_is_kept_and_says_so() -> None:
    async def story(house: House) -> None:
        await house.subscribe(filters=[OVER])
        event = await house.publish(data={"amount": 100})
        told = (await house.client.get(f"/v1/events/{event}")).json
        assert told["deliveries"] == []
        (why,) = told["unmatched"]
        assert why["url"] == URL
        assert "no, it is 100" in why["reason"]

    live(story)
