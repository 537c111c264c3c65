"""What is made at the Workfront door lives: delivered, disabled, enabled, in two versions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.world import Reply, always
from homing.web.workfront.api import BASE
from web.house import House, live
from web.test_workfront import DATE, URL, create


async def update(house: House, status: str = "CUR", **more: Any) -> str:
    new = {"ID": "5e7", "objCode": "PROJ", "status": status, **more}
    return await house.publish(
        type="PROJ.UPDATE", data={"newState": new, "oldState": {"ID": "5e7", "status": "PLN"}}
    )


def messages(house: House) -> list[dict[str, Any]]:
    return [json.loads(hit.body) for hit in house.world.sender.hits]


def test_an_update_is_delivered_as_workfront_does_it() -> None:
    async def story(house: House) -> None:
        made = await create(house, filters=[{"fieldName": "status", "fieldValue": "CUR"}])
        await update(house, "PLN")
        await update(house, "CUR")
        await house.settled()
        (hit,) = house.world.sender.hits
        assert hit.headers["authorization"] == "Bearer token-for-tests-1234"
        told = json.loads(hit.body)
        assert set(told) == {
            "eventType",
            "subscriptionId",
            "eventTime",
            "eventVersion",
            "subscriptionVersion",
            "customerId",
            "newState",
            "oldState",
        }
        assert (told["eventType"], told["subscriptionId"]) == ("UPDATE", made)
        assert told["oldState"] == {"ID": "5e7", "status": "PLN"}
        record = (await house.client.get(f"{BASE}/{made}")).json["subscription_url"]
        assert (record["successes"], record["failures"]) == (1, 0)

    live(story)


@pytest.mark.parametrize("by_url", [False, True])
def test_a_failing_url_is_disabled_shown_so_and_enabled_by_request(by_url: bool) -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = always(500)
        made = await create(house)
        path = f"{BASE}/{made}"
        for _ in range(101):
            await update(house)
        await house.world.wait(60_000)
        record = (await house.client.get(path)).json["subscription_url"]
        assert DATE(record["disabled_at"])
        assert record["frozen_at"] is None
        assert record["failures"] >= 101
        if by_url:
            got = await house.client.call("PUT", f"{BASE}/enable", json={"url": URL})
            record = got.json
        else:
            got = await house.client.call("PUT", f"{path}/enable")
            record = got.json["subscription_url"]
        assert got.status == 200
        assert (record["disabled_at"], record["failures"]) == (None, 0)
        endpoint = (await house.client.get("/v1/endpoints")).json["items"][0]["id"]
        await house.client.post(f"/v1/endpoints/{endpoint}/freeze")
        assert DATE((await house.client.get(path)).json["subscription_url"]["frozen_at"])
        unknown = await house.client.call(
            "PUT", f"{BASE}/enable", json={"url": "https://unknown.example/"}
        )
        assert unknown.status == 404

    live(story)


def test_a_version_is_changed_and_both_are_sent_for_five_minutes() -> None:
    async def story(house: House) -> None:
        made = await create(house)
        path = f"{BASE}/{made}"
        got = await house.client.call("PUT", f"{path}/version", json={"version": "v1"})
        assert (got.status, got.json["id"], got.json["version"]) == (200, made, "v1")
        assert [it["field"] for it in got.json["warnings"]] == ["version"]
        shown = (await house.client.get(path)).json
        assert shown["version"] == "v1"
        assert DATE(shown["dateVersionUpdated"])
        assert (await house.client.get(BASE)).json["meta"]["total_count"] == 1
        await update(house, groups=["red"])
        await house.settled()
        both = {told["subscriptionVersion"]: told for told in messages(house)}
        assert set(both) == {"v1", "v2"}
        assert {told["subscriptionId"] for told in both.values()} == {made}
        assert both["v1"]["newState"]["groups"] == "red"
        assert both["v2"]["newState"]["groups"] == ["red"]
        await house.world.wait(5 * 60_000)
        house.world.sender.hits.clear()
        await update(house)
        await house.settled()
        assert [told["subscriptionVersion"] for told in messages(house)] == ["v1"]

    live(story)


def test_the_second_version_is_not_lost_while_the_url_fails() -> None:
    async def story(house: House) -> None:
        down = True
        house.world.sender.scripts[URL] = lambda _: Reply(code=500 if down else 200)
        made = await create(house)
        await house.client.call("PUT", f"{BASE}/{made}/version", json={"version": "v1"})
        await update(house)
        await house.world.wait(10 * 60_000)
        down = False
        await house.world.wait(3_600_000)
        done = [one for one in await house.deliveries() if one["status"] == "delivered"]
        assert len(done) == 2

    live(story)


def test_the_twin_goes_with_its_subscription_and_is_used_again() -> None:
    async def story(house: House) -> None:
        made = await create(house)
        for version in ("v1", "v2", "v2", "v1"):
            await house.client.call("PUT", f"{BASE}/{made}/version", json={"version": version})
        everything = (await house.client.get("/v1/subscriptions")).json["items"]
        assert len(everything) == 2
        (twin,) = [one for one in everything if one["workfront"]["twin_of"]]
        assert (twin["workfront"]["id"], twin["workfront"]["version"]) == (made, "v2")
        assert (await house.client.get(f"{BASE}/{twin['id']}")).status == 404
        await house.client.delete(f"/v1/subscriptions/{made}")
        assert (await house.client.get("/v1/subscriptions")).json["items"] == []

    live(story)


def test_the_versions_of_many_are_changed_at_once() -> None:
    async def story(house: House) -> None:
        ids = [await create(house, url=f"{URL}?{number}") for number in range(3)]

        async def put(body: dict[str, Any]) -> Any:
            return await house.client.call("PUT", f"{BASE}/version", json=body)

        some = await put({"subscriptionIds": ids[:2], "version": "v1"})
        told = some.json
        assert {it: told["warnings"][it][0]["field"] for it in ids[:2]} == dict.fromkeys(
            ids[:2], "version"
        )
        assert (told["subscription_ids"], told["version"]) == (ids[:2], "v1")
        every = await put({"allCustomerSubscriptions": True, "version": "v1"})
        assert (every.json["subscription_ids"], every.json["version"]) == (ids, "v1")
        wrong: list[tuple[dict[str, Any], list[str]]] = [
            ({"version": "v1"}, ["subscriptionIds"]),
            ({"allCustomerSubscriptions": False, "version": "v1"}, ["subscriptionIds"]),
            (
                {"subscriptionIds": ids, "allCustomerSubscriptions": True, "version": "v1"},
                ["subscriptionIds"],
            ),
            ({"subscriptionIds": [*ids, "sub_x"], "version": "v2"}, ["subscriptionIds[3]"]),
            ({"subscriptionIds": ids, "version": "v3"}, ["version"]),
        ]
        for body, fields in wrong:
            got = await put(body)
            assert (got.status, got.fields) == (400, fields)
        listed = (await house.client.get(BASE)).json["subscriptions"]
        assert {one["version"] for one in listed} == {"v1"}
        one = await house.client.call("PUT", f"{BASE}/{ids[0]}/version", json={"version": "v9"})
        assert one.status == 400
        gone = await house.client.call(
            "PUT", f"{BASE}/sub_0000000000001/version", json={"version": "v1"}
        )
        assert gone.status == 404

    live(story)


def test_what_is_edited_through_our_api_keeps_its_workfront_side() -> None:
    async def story(house: House) -> None:
        made = await create(house, objId="5e7", base64Encoding=True)
        got = await house.client.patch(
            f"/v1/subscriptions/{made}",
            {"filters": [{"fieldName": "status", "comparison": "changed"}]},
        )
        assert got.json["workfront"] == {
            "id": made,
            "warnings": [],
            "version": "v2",
            "base64": True,
            "object": "5e7",
            "twin_of": None,
        }
        shown = (await house.client.get(f"{BASE}/{made}")).json
        assert shown["filters"] == [{"fieldName": "status", "comparison": "changed"}]
        assert shown["objId"] == "5e7"

    live(story)
