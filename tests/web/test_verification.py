"""Proof of ownership through the API, the dashboard and the Workfront-compatible API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.world import Hit, Reply, always
from homing.engine.options import EngineOptions
from homing.model import Verification
from homing.web.asgi import asgi_app
from homing.web.workfront.api import BASE
from web.asgi import Client
from web.browse import Browser, text
from web.house import URL, House, live, use_cases

CHALLENGE = {"verification": "challenge"}


def echoing(hit: Hit) -> Reply:
    if hit.headers.get("homing-event-type") != "homing.challenge":
        return Reply()
    return Reply(excerpt=json.loads(hit.body)["challenge"].encode())


def requiring(house: House, **more: Any) -> Client:
    """A client of the same world in an installation where every URL needs a proof."""
    app = use_cases(house.world, house.api_keys, verification=Verification.CHALLENGE, **more)
    return Client(asgi_app(app))


def test_an_unproved_url_is_shown_as_such_and_verified_later() -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = always(404)
        made = await house.subscribe(**CHALLENGE)
        assert made["unverified"]
        assert "404" in made["receiver"]["problem"]
        assert made["secret"].startswith("whsec_")
        one = f"/v1/subscriptions/{made['id']}"
        assert (await house.client.get(one)).json["unverified"]
        got = await house.client.post(f"{one}/test")
        assert (got.status, got.problem.code) == (409, "conflict")
        key = await house.publish()
        (unmatched,) = (await house.client.get(f"/v1/events/{key}")).json["unmatched"]
        assert "not proved" in unmatched["reason"]
        house.world.sender.scripts[URL] = echoing
        got = await house.client.post(f"{one}/verify")
        assert (got.status, got.json["unverified"], got.json["receiver"]["problem"]) == (
            200,
            False,
            "",
        )
        await house.publish()
        assert len(await house.deliveries()) == 1

    live(story)


def test_a_change_to_an_unproved_url_is_refused_with_the_reason() -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = echoing
        made = await house.subscribe(**CHALLENGE)
        one = f"/v1/subscriptions/{made['id']}"
        got = await house.client.patch(one, {"url": "https://other.example/"})
        assert (got.status, got.problem.code, got.fields) == (422, "not_verified", ["url"])
        assert (await house.client.get(one)).json["url"] == URL

    live(story)


def test_a_subscription_without_verification_cannot_be_verified() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe()
        got = await house.client.post(f"/v1/subscriptions/{made['id']}/verify")
        assert got.status == 409
        assert house.world.sender.hits == []

    live(story)


def test_too_many_challenges_get_a_429_with_the_time_to_wait() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(**CHALLENGE)
        for _ in range(9):
            assert (await house.client.post(f"/v1/subscriptions/{made['id']}/verify")).status == 200
        got = await house.client.post(f"/v1/subscriptions/{made['id']}/verify")
        assert (got.status, got.headers["retry-after"]) == (429, "60")

    live(story)


def test_an_installation_can_require_a_proof_of_every_new_url() -> None:
    async def story(house: House) -> None:
        older = await house.subscribe()
        client = requiring(house)
        draft = {"url": "https://a.example/", "types": ["*"], "verification": "none"}
        got = await client.post("/v1/subscriptions", draft)
        assert (got.json["verification"], got.json["unverified"]) == ("challenge", True)
        one = f"/v1/subscriptions/{older['id']}"
        got = await client.patch(one, {"description": "as before"})
        assert (got.status, got.json["unverified"]) == (200, False)
        got = await client.patch(one, {"url": "https://b.example/"})
        assert (got.status, got.problem.code) == (422, "not_verified")
        query = "?customerId=default"
        body = {
            "objCode": "PROJ",
            "eventType": "UPDATE",
            "url": "https://c.example/",
            "authToken": "t",
        }
        got = await client.post(BASE + query, body)
        assert got.status == 201
        rows = (await client.get("/v1/subscriptions")).json["items"]
        assert [it["unverified"] for it in rows if it["url"] == "https://c.example/"] == [True]

    live(story)


def test_the_handshake_needs_a_name_of_this_sender() -> None:
    async def story(house: House) -> None:
        draft = {"url": URL, "types": ["*"], "verification": "cloudevents"}
        got = await house.client.post("/v1/subscriptions", draft)
        assert (got.status, got.fields) == (422, ["verification"])
        assert "public_url" in got.problem.problems[0].reason
        client = requiring(house, origin="homing.example")
        got = await client.post("/v1/subscriptions", draft)
        assert (got.status, got.json["verification"]) == (201, "cloudevents")

    live(story, EngineOptions(origin="homing.example"))


def test_the_dashboard_says_why_and_verifies() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(**CHALLENGE)
        browser = Browser(house.app)
        await browser.sign_in()
        page = f"/subscriptions/{made['id']}"
        assert "unverified" in text(await browser.get("/subscriptions"))
        shown = text(await browser.get(page))
        assert "gets no events" in shown
        assert "does not return the challenge" in shown
        got = await browser.form(page, f"{page}/verify")
        assert (got.status, got.headers["location"]) == (303, page)
        assert "gets no events" in text(await browser.get(page))
        house.world.sender.scripts[URL] = echoing
        await browser.form(page, f"{page}/verify")
        shown = text(await browser.get(page))
        assert "gets no events" not in shown

    live(story)


@pytest.mark.parametrize("page", ["/subscriptions", "/subscriptions/{id}"])
def test_the_dashboard_shows_a_subscription_that_is_gone(page: str) -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = always(410)
        made = await house.subscribe(policy="obeys")
        await house.publish()
        await house.settled()
        got = await house.client.get(f"/v1/subscriptions/{made['id']}")
        assert not got.json["active"]
        assert got.json["receiver"]["gone_at"]
        browser = Browser(house.app)
        await browser.sign_in()
        assert "inactive: 410" in text(await browser.get(page.format(id=made["id"])))
        (delivery,) = await house.deliveries()
        got = await house.client.get(f"/v1/deliveries/{delivery['id']}")
        assert (got.json["status"], got.json["reason"]) == ("cancelled", "gone")
        assert "responded with 410" in got.json["explanation"]
        got = await house.client.get("/v1/deliveries?reason=gone")
        assert len(got.json["items"]) == 1

    from engine.test_gone import options

    live(story, options())
