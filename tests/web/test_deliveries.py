"""Deliveries over HTTP: listed, explained, replayed, cancelled."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.world import HOUR, MINUTE, Reply, always
from homing.engine.options import EngineOptions
from homing.policy.presets import PRESETS, WORKFRONT
from homing.policy.retry import OnRetryAfter
from web.house import URL, House, live


def test_a_delivery_is_shown_with_its_attempts() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe()
        key = await house.publish()
        await house.settled()
        (item,) = await house.deliveries()
        got = (await house.client.get(f"/v1/deliveries/{item['id']}")).json
        assert item.items() <= got.items()
        assert (got["event"], got["type"], got["url"]) == (key, "a.b", URL)
        assert (got["subscription"], got["endpoint"]) == (made["id"], made["endpoint"])
        assert (got["status"], got["attempts_made"], got["schedule"]) == ("delivered", 1, [])
        assert got["webhook_id"] == got["id"]
        (attempt,) = got["attempts"]
        assert (attempt["number"], attempt["lane"], attempt["code"]) == (1, "fresh", 200)
        assert got["explanation"].startswith("Delivered")

    live(story)


def test_a_pending_delivery_shows_the_retries_ahead_and_why_it_waits() -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = always(404)
        await house.subscribe()
        await house.publish()
        await house.settled()
        (item,) = await house.deliveries("?status=pending")
        got = (await house.client.get(f"/v1/deliveries/{item['id']}")).json
        assert [step["n"] for step in got["schedule"]] == list(range(1, 12))
        assert got["schedule"][0]["due_at"] == got["due_at"]
        assert got["schedule"][-1]["due_at"] == got["expires_at"]
        assert got["explanation"].startswith("Waiting:")
        assert f"retry 1 of 11 is due at {got['due_at']};" in got["explanation"]
        parts = got["explanation_parts"]
        assert "".join(part["text"] for part in parts) == got["explanation"]
        times = [part["time"] for part in parts if part["time"] is not None]
        assert times == [got["due_at"], got["expires_at"], got["attempts"][0]["started_at"]]
        assert "404 Not Found" in got["explanation"]
        assert got["attempts"][0]["decided"] == "retry"
        assert got["policy"] == {"name": "workfront", "on_gone": "retry", "retry_after": "obey"}

    live(story)


def test_a_delivery_shows_that_its_policy_ignores_retry_after() -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = always(503, retry_after="600")
        await house.subscribe(policy="strict")
        await house.publish()
        await house.settled()
        (item,) = await house.deliveries("?status=pending")
        got = (await house.client.get(f"/v1/deliveries/{item['id']}")).json
        assert got["policy"] == {"name": "strict", "on_gone": "retry", "retry_after": "ignore"}
        assert got["explanation"].endswith("Its policy strict ignores Retry-After.")

    strict = replace(WORKFRONT, name="strict", retry_after=OnRetryAfter.IGNORE)
    live(story, EngineOptions(schedules={**PRESETS, "strict": strict}))


def test_an_attempt_in_flight_is_said_to_be() -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = lambda _: Reply(latency_ms=4_000)
        await house.subscribe(deadline_ms=9_000)
        await house.publish()
        await house.settled()
        (item,) = await house.deliveries()
        got = (await house.client.get(f"/v1/deliveries/{item['id']}")).json
        assert got["explanation"].startswith("In flight: attempt 1")
        assert "has 9 s from its start" in got["explanation"]

    live(story)


def test_deliveries_are_found_by_their_conditions() -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = always(500)
        made = await house.subscribe(types=["a.*"])
        other = await house.subscribe("https://other.example/", types=["b"])
        acme = await house.subscribe("https://acme.example/", tenant="acme")
        await house.publish(id="k1", type="a.b")
        await house.settled()
        await house.world.wait(HOUR)
        await house.publish(id="k2", type="b")
        await house.publish(id="k3", tenant="acme")
        await house.settled()
        for query, expected in (
            ("", ["k3", "k2", "k1"]),
            ("?status=pending", ["k1"]),
            ("?status=delivered", ["k3", "k2"]),
            (f"?endpoint={made['endpoint']}", ["k1"]),
            (f"?subscription={other['id']}", ["k2"]),
            (f"?subscription={acme['id']}&tenant=default", []),
            ("?event=k2", ["k2"]),
            ("?event=k3", []),
            ("?event=k3&tenant=acme", ["k3"]),
            ("?event=none", []),
            ("?type=b", ["k2"]),
            ("?tenant=acme", ["k3"]),
            ("?since=30m", ["k3", "k2"]),
            ("?since=2h", ["k3", "k2", "k1"]),
            ("?since=2020-01-01T00:00:00Z", ["k3", "k2", "k1"]),
            ("?since=9999-01-01T00:00:00Z", []),
            ("?expiring_within=47h", []),
            ("?expiring_within=48h", ["k1"]),
            ("?expiring_within=999999999d", ["k1"]),
        ):
            found = await house.deliveries(query)
            assert [one["event"] for one in found] == expected, query

    live(story)


@pytest.mark.parametrize(
    "query",
    [
        "status=lost",
        "endpoint=sub_0000000000000",
        "subscription=x",
        "event=a.b",
        "type=a%20b",
        "since=yesterday",
        "since=-2h",
        "expiring_within=2",
        "expiring_within=2020-01-01T00:00:00Z",
        "tenant=a.b",
        "tenant=%00",
        "limit=0",
        "limit=201",
        "limit=ten",
        "limit=%D9%A1",
        "cursor=x",
        "cursor=",
        "cursor=AAAAAAAAAAB",
        "cursor=__________8",
        "colour=red",
    ],
)
def test_a_wrong_parameter_is_named(query: str) -> None:
    async def story(house: House) -> None:
        got = await house.client.get(f"/v1/deliveries?{query}")
        assert (got.status, got.fields) == (422, [query.partition("=")[0]])

    live(story)


def test_a_parameter_is_given_once() -> None:
    async def story(house: House) -> None:
        got = await house.client.get("/v1/deliveries?limit=1&limit=2")
        assert (got.status, got.fields) == (422, ["limit"])
        many = "&".join(f"p{n}=1" for n in range(60))
        assert (await house.client.get(f"/v1/deliveries?{many}")).status == 400

    live(story)


def test_a_finished_delivery_is_replayed_with_the_same_webhook_id() -> None:
    async def story(house: House) -> None:
        await house.subscribe()
        await house.publish()
        await house.settled()
        (old,) = await house.deliveries()
        got = await house.client.post(f"/v1/deliveries/{old['id']}/replay")
        assert got.status == 201
        new = got.json
        assert got.headers["location"] == f"/v1/deliveries/{new['id']}"
        assert new["id"] != old["id"]
        assert (new["replay"], new["webhook_id"]) == (True, old["webhook_id"])
        await house.settled()
        assert (await house.client.get(got.headers["location"])).json["status"] == "delivered"
        assert len(house.world.hits(URL)) == 2

    live(story)


def test_a_replay_to_a_frozen_endpoint_waits_and_says_so() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(types=["a.*"])
        await house.publish()
        await house.settled()
        (old,) = await house.deliveries()
        await house.client.post(f"/v1/endpoints/{made['endpoint']}/freeze")
        got = await house.client.post(f"/v1/deliveries/{old['id']}/replay")
        assert (got.status, got.json["status"]) == (201, "pending")
        assert "frozen" in got.json["explanation"]

    live(story)


def test_what_cannot_be_replayed_says_why() -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = always(500)
        made = await house.subscribe(types=["a.*"])
        await house.publish()
        await house.settled()
        (item,) = await house.deliveries()
        path = f"/v1/deliveries/{item['id']}/replay"
        got = await house.client.post(path)
        assert (got.status, got.problem.code) == (409, "still_pending")
        await house.client.delete(f"/v1/subscriptions/{made['id']}")
        await house.settled()
        got = await house.client.post(path)
        assert (got.status, got.problem.code) == (409, "subscription_gone")
        got = await house.client.post("/v1/deliveries/dlv_0000000000001/replay")
        assert got.status == 404

    live(story)


def test_a_pending_delivery_is_cancelled_once() -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = always(500)
        await house.subscribe()
        await house.publish()
        await house.settled()
        (item,) = await house.deliveries()
        path = f"/v1/deliveries/{item['id']}/cancel"
        got = await house.client.post(path)
        assert (got.status, got.json["status"], got.json["reason"]) == (
            200,
            "cancelled",
            "by_person",
        )
        got = await house.client.post(path)
        assert (got.status, got.problem.code) == (409, "already_finished")
        hits = len(house.world.hits(URL))
        await house.world.wait(10 * MINUTE)
        assert len(house.world.hits(URL)) == hits
        assert (await house.client.post("/v1/deliveries/dlv_0000000000001/cancel")).status == 404

    live(story)


def test_a_pending_delivery_is_tried_now_and_the_audit_log_says_who_asked() -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = always(404)
        await house.subscribe()
        await house.publish()
        await house.settled()
        (item,) = await house.deliveries()
        house.world.sender.scripts[URL] = always(200)
        got = await house.client.post(f"/v1/deliveries/{item['id']}/try", {})
        assert (got.status, got.json["status"]) == (200, "pending")
        assert got.json["due_at"] < item["due_at"]
        await house.settled()
        (item,) = await house.deliveries()
        assert (item["status"], item["attempts_made"]) == ("delivered", 2)
        entries = (await house.client.get("/v1/audit")).json["items"]
        tried = next(it for it in entries if it["action"] == "deliveries.try_now")
        assert (tried["object"], list(tried["after"])) == (item["id"], ["due_at"])
        got = await house.client.post(f"/v1/deliveries/{item['id']}/try", {})
        assert (got.status, got.json["code"]) == (409, "already_finished")

    live(story)


def test_nothing_is_tried_now_at_an_endpoint_to_which_nothing_is_sent() -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = always(404)
        made = await house.subscribe()
        await house.publish()
        await house.settled()
        (item,) = await house.deliveries()
        await house.client.post(f"/v1/endpoints/{made['endpoint']}/freeze", {})
        got = await house.client.post(f"/v1/deliveries/{item['id']}/try", {})
        assert (got.status, got.json["code"]) == (409, "conflict")
        assert got.json["detail"] == "The endpoint is frozen: enable it, or send a test event."
        shown = (await house.client.get(f"/v1/deliveries/{item['id']}")).json
        assert shown["schedule"] == []  # Nothing of it will be tried.
        assert shown["due_at"] == item["due_at"]

    live(story)


def test_a_delivery_in_flight_cannot_be_tried_now() -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = lambda _: Reply(latency_ms=4_000)
        await house.subscribe(deadline_ms=9_000)
        await house.publish()
        await house.settled()
        (item,) = await house.deliveries()
        got = await house.client.post(f"/v1/deliveries/{item['id']}/try", {})
        assert got.status == 409
        assert "is being made now" in got.json["detail"]

    live(story)


def test_nothing_of_a_paused_subscription_is_tried_now() -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = always(404)
        made = await house.subscribe()
        await house.publish()
        await house.settled()
        (item,) = await house.deliveries()
        await house.client.post(f"/v1/subscriptions/{made['id']}/pause", {})
        got = await house.client.post(f"/v1/deliveries/{item['id']}/try", {})
        assert got.status == 409
        assert "is paused: resume it" in got.json["detail"]
        shown = (await house.client.get(f"/v1/deliveries/{item['id']}")).json
        assert shown["schedule"] == []

    live(story)
