"""A changed URL: what a subscription authenticates with stays at its origin, by every transport."""

from __future__ import annotations

from typing import Any

import pytest

from homing.web.workfront.api import OPERATIONS
from web.browse import Browser, text
from web.house import House, live
from web.test_client_certificates import a_pair
from web.test_portal import customer

HERE, SAME = "https://receiver.example/hook", "https://receiver.example/other?a=b"
ELSEWHERE = (
    "https://evil.example/hook",
    "http://receiver.example/hook",
    "https://receiver.example:8443/hook",
    "https://receiver.example.evil.example/hook",
)
OAUTH = {
    "oauth_token_url": "https://auth.example/token",
    "oauth_client_id": "client",
    "oauth_client_secret": "the-client-secret",
}
WAYS: dict[str, dict[str, Any]] = {
    "token": {"token": "the-stored-token"},
    "basic_password": {"basic_user": "ada", "basic_password": "the-stored-password"},
    "oauth_client_secret": OAUTH,
    "headers.X-Api-Key": {"headers": {"X-Api-Key": "the-stored-key"}},
}


async def made_with(house: House, way: dict[str, Any]) -> str:
    return f"/v1/subscriptions/{(await house.subscribe(HERE, tenant='acme', **way))['id']}"


async def refused(house: House, path: str, changes: dict[str, Any]) -> list[str]:
    got = await house.client.patch(path, changes)
    assert got.status == 422, got.body
    assert b"the-" not in got.body
    return [it["field"] for it in got.json["problems"]]


@pytest.mark.parametrize("field", WAYS)
def test_another_origin_gets_no_kept_secret_by_the_api(field: str) -> None:
    async def story(house: House) -> None:
        way = WAYS[field]
        path = await made_with(house, way)
        assert (await house.client.patch(path, {"url": SAME})).status == 200
        for url in ELSEWHERE:
            assert await refused(house, path, {"url": url}) == [field]
        await house.publish(tenant="acme")
        await house.settled()
        assert {hit.url for hit in house.world.sender.hits} <= {SAME, "https://auth.example/token"}
        # Sent again, also with the same value, it goes to the new origin.
        assert (await house.client.patch(path, {"url": ELSEWHERE[0], **way})).status == 200
        assert (await house.client.patch(path, {"url": HERE, **way})).status == 200
        removed = {name: None for name in way if name != "headers"}
        if "headers" in way:
            removed = {"headers": {"x-api-key": None}}  # type: ignore[dict-item]
        assert (await house.client.patch(path, {"url": ELSEWHERE[0], **removed})).status == 200

    live(story)


def test_another_origin_does_not_get_a_client_certificate_unasked() -> None:
    async def story(house: House) -> None:
        pair = a_pair(house)
        path = await made_with(house, pair)
        assert (await house.client.patch(path, {"url": SAME})).status == 200
        assert await refused(house, path, {"url": ELSEWHERE[0]}) == ["client_key"]
        got = await house.client.patch(path, {"url": ELSEWHERE[0], **pair})
        assert got.status == 200, got.body

    live(story)


def test_another_token_url_does_not_get_the_client_secret_or_the_certificate() -> None:
    async def story(house: House) -> None:
        path = await made_with(house, {**OAUTH, **a_pair(house)})
        near = {"oauth_token_url": "https://auth.example/v2/token"}
        assert (await house.client.patch(path, near)).status == 200
        far = {"oauth_token_url": "https://evil.example/token"}
        assert await refused(house, path, far) == ["oauth_client_secret", "client_key"]

    live(story)


def test_every_header_is_named_and_only_those_that_are_kept() -> None:
    async def story(house: House) -> None:
        headers = {"x-one": "1", "X-Two": "2", "x-three": "3"}
        path = await made_with(house, {"headers": headers, "token": "the-stored-token"})
        changes: dict[str, Any] = {"url": ELSEWHERE[0]}
        changes["headers"] = {"x-two": "22", "x-three": None, "x-new": "n"}
        assert await refused(house, path, changes) == ["token", "headers.x-one"]
        changes = {"url": ELSEWHERE[0], "token": None, "headers": dict.fromkeys(headers)}
        assert (await house.client.patch(path, changes)).status == 200

    live(story)


def test_the_dashboard_asks_for_the_secrets_again() -> None:
    async def story(house: House) -> None:
        path = await made_with(
            house, {"token": "the-stored-token", "headers": {"x-own": "the-stored-key"}}
        )
        page, browser = path.removeprefix("/v1"), Browser(house.app)
        await browser.sign_in()
        kept = {"types": "*", "active": "on", "token": "****", "headers": "x-own: ****"}
        got = await browser.form(f"{page}/edit", page, url=ELSEWHERE[0], **kept)
        assert got.status == 422
        assert text(got).count("is not sent to https://evil.example unasked") == 2
        assert b"the-stored" not in got.body
        asked = {"id": page.rpartition("/")[2], "url": ELSEWHERE[0], **kept}
        hints = await browser.form(f"{page}/edit", "/subscriptions/check", **asked)
        assert set(hints.json["problems"]) == {"token", "headers"}
        assert (await house.client.get(path)).json["url"] == HERE
        given = {**kept, "token": "the-stored-token", "headers": ""}
        got = await browser.form(f"{page}/edit", page, url=ELSEWHERE[0], **given)
        assert got.status == 303, text(got)
        kept["headers"] = ""
        got = await browser.form(f"{page}/edit", page, url=ELSEWHERE[0] + "/x", **kept)
        assert got.status == 303, text(got)

    live(story)


def test_the_portal_asks_again_for_what_it_offers_and_refuses_for_the_rest() -> None:
    async def story(house: House) -> None:
        browser = await customer(house)
        kept = {"types": "*", "active": "on", "token": "****"}
        path = await made_with(house, {"token": "the-stored-token"})
        page = path.replace("/v1/subscriptions", "/portal/endpoints")
        got = await browser.form(f"{page}/edit", page, url=ELSEWHERE[0], **kept)
        assert got.status == 422
        assert "is not sent to https://evil.example unasked" in text(got)
        got = await browser.form(f"{page}/edit", page, url=ELSEWHERE[0], **{**kept, "token": ""})
        assert got.status == 303, text(got)
        for field in ("basic_password", "oauth_client_secret"):
            path = await made_with(house, WAYS[field])
            page = path.replace("/v1/subscriptions", "/portal/endpoints")
            kept = {"types": "*", "active": "on"}
            got = await browser.form(f"{page}/edit", page, url=ELSEWHERE[0], **kept)
            assert got.status == 422
            assert f"cannot be changed here: {field} is kept for" in text(got)
            assert (await house.client.get(path)).json["url"] == HERE

    live(story)


def test_the_workfront_compatible_api_changes_no_url() -> None:
    """As Adobe's: a subscription with another URL is a new one, and its token is sent with it."""
    changing = {it.path for it in OPERATIONS if it.method in {"PUT", "PATCH"}}
    assert {path.rpartition("/")[2] for path in changing} == {"version", "enable"}
