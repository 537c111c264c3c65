"""Erasures through the API: roles, tenants, refusals and progress."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from engine.test_erase import FIELDS
from homing.engine.options import EngineOptions
from web.asgi import KEY, Client
from web.browse import Browser, text
from web.house import URL, House, live

PATH = "/v1/erasures"


async def key_of(house: House, role: str, tenant: str) -> Client:
    made = await house.client.post("/v1/keys", {"name": "n", "role": role, "tenant": tenant})
    client = Client(house.app)
    client.key = made.json["key"]
    return client


def test_an_event_is_erased_and_its_progress_can_be_read() -> None:
    async def story(house: House) -> None:
        await house.subscribe()
        key = await house.publish(id="canary", data={"x": 1})
        await house.settled()
        got = await house.client.post(PATH, {"event": key})
        assert got.status == 202
        assert got.headers["location"] == f"{PATH}/{got.json['id']}"
        assert (got.json["kind"], got.json["events"], got.json["deliveries"]) == ("event", 1, 1)
        assert (await house.client.get("/v1/events/canary")).status == 404
        await house.world.wait(1_000)
        found = await house.client.get(got.headers["location"])
        assert found.json["state"] == "done"
        assert found.json["finished_at"]
        assert "canary" not in str(found.json)
        again = await house.client.post(PATH, {"event": key})
        assert (again.status, again.json["id"]) == (202, got.json["id"])
        page = (await house.client.get(PATH)).json
        assert [it["id"] for it in page["items"]] == [got.json["id"]]
        repeated = await house.client.post(
            "/v1/events", {"type": "a.b", "id": "canary", "data": {"x": 1}}
        )
        assert repeated.json["events"][0]["duplicate"] is True
        assert (await house.client.post(PATH, {"event": "never"})).status == 404

    live(story)


def test_a_manager_erases_events_of_its_own_tenant_only() -> None:
    async def story(house: House) -> None:
        await house.publish(id="one", tenant="acme", data={"customer": "ada"})
        other = await key_of(house, "manager", "other")
        acme = await key_of(house, "manager", "acme")
        viewer = await key_of(house, "viewer", "acme")
        assert (await other.post(PATH, {"event": "one"})).status == 404
        assert (await other.post(PATH, {"event": "one", "tenant": "acme"})).status == 403
        by_value = {"field": "data.customer", "value": "ada"}
        assert (await other.post(PATH, by_value)).json["events"] == 0
        assert (await viewer.post(PATH, {"event": "one"})).status == 403
        whole = {"everything": True, "tenant": "acme"}
        assert (await acme.post(PATH, whole)).status == 403
        assert (await house.client.get("/v1/events/one?tenant=acme")).status == 200
        erased = await acme.post(PATH, by_value)
        assert (erased.status, erased.json["events"]) == (202, 1)
        assert (await other.get(f"{PATH}/{erased.json['id']}")).status == 404
        assert (await viewer.get(f"{PATH}/{erased.json['id']}")).status == 200
        assert [it["tenant"] for it in (await other.get(PATH)).json["items"]] == ["other"]

    live(story, FIELDS)


def test_a_whole_tenant_is_erased_with_its_keys() -> None:
    async def story(house: House) -> None:
        sub = await house.subscribe(tenant="acme")
        await house.publish(tenant="acme", id="one")
        await house.settled()
        acme = await key_of(house, "manager", "acme")
        got = await house.client.post(PATH, {"everything": True, "tenant": "acme"})
        assert (got.status, got.json["kind"]) == (202, "tenant")
        assert (await acme.get("/v1/subscriptions")).status == 401
        for path in (
            f"/v1/subscriptions/{sub['id']}",
            f"/v1/endpoints/{sub['endpoint']}",
            "/v1/events/one?tenant=acme",
        ):
            assert (await house.client.get(path)).status == 404, path
        for path in ("subscriptions", "endpoints", "deliveries", "events", "causes"):
            page = await house.client.get(f"/v1/{path}?tenant=acme")
            assert page.json["items"] == [], path
        found = await house.client.get(f"/v1/search?q={URL}")
        assert found.json["items"] == []
        refused = await house.client.post(
            "/v1/subscriptions", {"url": URL, "types": ["*"], "tenant": "acme"}
        )
        assert refused.status == 409
        await house.world.wait(5_000)
        assert (await house.client.get(got.headers["location"])).json["state"] == "done"
        assert (await house.client.get("/v1/keys?tenant=acme")).json["items"] == []
        await house.subscribe(tenant="acme")
        ledger = (await house.client.get("/v1/ledger?tenant=acme")).json
        assert ledger["items"][0]["accepted"] == ledger["items"][0]["delivered"]

    live(story, replace(EngineOptions(), step_rows=5))


def test_a_bad_request_is_refused_with_the_field() -> None:
    refusals: list[tuple[dict[str, Any], str]] = [
        ({}, "event"),
        ({"event": "a", "everything": True, "tenant": "t"}, "everything"),
        ({"event": "a", "field": "data.customer", "value": "x"}, "field"),
        ({"event": "with.dot"}, "event"),
        ({"field": "data.other", "value": "x"}, "field"),
        ({"field": "data.customer"}, "value"),
        ({"field": "data.customer", "value": "x" * 257}, "value"),
        ({"event": "a", "value": "x"}, "value"),
        ({"everything": True}, "tenant"),
        ({"event": "a", "tenant": "no good"}, "tenant"),
    ]

    async def story(house: House) -> None:
        for body, field in refusals:
            got = await house.client.post(PATH, body)
            assert got.status == 422, (body, got.body)
            assert [it["field"] for it in got.json["problems"]] == [field], body

    live(story, FIELDS)


def test_the_dashboard_erases_after_a_confirmation_and_shows_the_progress() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        await browser.sign_in(KEY)
        empty = await browser.get("/erasures")
        assert "Nothing was erased" in text(empty)
        await house.publish(id="canary", data={"customer": "ada"})
        await house.publish(id="two", data={"customer": "ada"})
        await house.publish(id="three", tenant="acme")
        page = await browser.get("/events/default/canary")
        assert "Erase this event?" in text(page)
        refused = await browser.form("/erasures", "/erasures", event="canary", confirm="yes")
        assert refused.status == 422
        assert "type erase to confirm" in text(refused)
        assert (await house.client.get("/v1/events/canary")).status == 200
        for form in (
            {"event": "canary", "confirm": "erase"},
            {"field": "data.customer", "value": "ada", "confirm": "erase"},
            {"everything": "on", "tenant": "acme", "confirm": "acme"},
        ):
            done = await browser.form("/erasures", "/erasures", **form)
            assert (done.status, done.headers["location"]) == (303, "/erasures")
        for path in ("/v1/events/canary", "/v1/events/two", "/v1/events/three?tenant=acme"):
            assert (await house.client.get(path)).status == 404
        await house.world.wait(5_000)
        shown = text(await browser.get("/erasures"))
        assert "canary" not in shown
        assert shown.count("done") == 3

    live(story, FIELDS)


def test_a_viewer_sees_no_buttons_to_erase() -> None:
    async def story(house: House) -> None:
        viewer = await key_of(house, "viewer", "acme")
        browser = Browser(house.app)
        assert viewer.key is not None
        await browser.sign_in(viewer.key)
        page = await browser.get("/erasures")
        assert page.status == 200
        assert "Erase an event" not in text(page)

    live(story)
