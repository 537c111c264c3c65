"""Subscriptions over HTTP: created, shown without their secrets, changed, deleted, tested."""

from __future__ import annotations

from typing import Any

import pytest

from engine.world import always
from web.house import URL, House, live

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
FULL: dict[str, Any] = {
    "url": "HTTPS://Receiver.example:443/hook?a=%20",
    "types": ["order.*", "user.created"],
    "tenant": "acme",
    "format": "cloudevents",
    "token": "token-1234",
    "headers": {"X-Own": "own-value-5678", "X-Short": "12345678"},
    "secret": SECRET,
    "policy": "standard-webhooks",
    "deadline_ms": 1000,
    "active": False,
    "description": "Orders, for the shop.",
}


def test_a_subscription_is_created_with_its_secret_shown_this_once() -> None:
    async def story(house: House) -> None:
        got = await house.client.post("/v1/subscriptions", FULL)
        assert got.status == 201
        made = got.json
        assert got.headers["location"] == f"/v1/subscriptions/{made['id']}"
        assert made["secret"] == SECRET
        assert made["url"] == "https://receiver.example/hook?a=%20"
        shown = (await house.client.get(got.headers["location"])).json
        del made["secret"]
        assert made.pop("backfill") is None
        assert shown == made
        assert shown["token"] == "****1234"
        assert shown["headers"] == {"X-Own": "****5678", "X-Short": "****"}
        assert shown["secrets"] == [{"value": "****LaSw", "until": None}]
        same = ("tenant", "types", "format", "policy", "deadline_ms", "active", "description")
        assert {name: shown[name] for name in same} == {name: FULL[name] for name in same}

    live(story)


def test_without_a_secret_one_is_made() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe()
        assert made["secret"].startswith("whsec_")
        assert made["tenant"] == "default"
        assert made["secret"].encode() not in (await house.client.get("/v1/subscriptions")).body

    live(story)


def test_no_response_but_the_first_ever_shows_a_secret() -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts["https://receiver.example/hook?a=%20"] = always(500)
        made = await house.subscribe(**{**FULL, "active": True, "types": ["*"]})
        await house.publish(tenant="acme")
        await house.settled()
        (delivery,) = await house.deliveries()
        one = f"/v1/subscriptions/{made['id']}"
        for method, path in (
            ("GET", one),
            ("GET", "/v1/subscriptions"),
            ("GET", f"/v1/deliveries/{delivery['id']}"),
            ("POST", f"{one}/test"),
            ("PATCH", one),
            ("GET", f"/v1/endpoints/{made['endpoint']}"),
            ("GET", "/metrics"),
        ):
            got = await house.client.call(method, path, json={"description": "x"})
            assert got.status == 200, path
            for secret in (SECRET, FULL["token"], "own-value-5678", "12345678"):
                assert secret.encode() not in got.body, path

    live(story)


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"url": "http://127.0.0.1/"}, ["url"]),
        ({"url": "ftp://x/"}, ["url"]),
        ({"types": []}, ["types"]),
        ({"types": "*"}, ["types"]),
        ({"types": ["*", 1]}, ["types[1]"]),
        ({"headers": {"Host": "x", "X-Bad": "a\nb"}}, ["headers.Host", "headers.X-Bad"]),
        ({"headers": {"x": 1}}, ["headers[...]"]),
        ({"format": "xml"}, ["format"]),
        ({"colour": "red"}, ["colour"]),
        ({"active": "yes"}, ["active"]),
        ({"deadline_ms": 0, "policy": "never"}, ["policy", "deadline_ms"]),
        ({"secret": "whsec_short"}, ["secret"]),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, Any], fields: list[str]) -> None:
    async def story(house: House) -> None:
        wanted = {"url": URL, "types": ["*"], **changes}
        got = await house.client.post("/v1/subscriptions", wanted)
        assert (got.status, got.fields) == (422, fields)
        assert (await house.client.get("/v1/subscriptions")).json["items"] == []

    live(story)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff"])
def test_what_is_not_json_is_a_400(body: bytes) -> None:
    async def story(house: House) -> None:
        assert (await house.client.post("/v1/subscriptions", body=body)).status == 400

    live(story)


def test_a_body_over_1_mib_is_too_large() -> None:
    async def story(house: House) -> None:
        body = b" " * (1024 * 1024 + 1)
        assert (await house.client.post("/v1/subscriptions", body=body)).status == 413
        halves = [body[: len(body) // 2]] * 3
        assert (await house.client.post("/v1/subscriptions", chunks=halves)).status == 413

    live(story)


def test_a_change_keeps_what_it_does_not_name() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(**FULL)
        path = f"/v1/subscriptions/{made['id']}"
        got = await house.client.patch(
            path, {"active": True, "headers": {"x-own": None, "X-New": "new"}}
        )
        assert got.status == 200
        assert got.json["headers"] == {"X-Short": "****", "X-New": "****"}
        assert got.json["active"] is True
        kept = ("url", "types", "format", "token", "secrets", "policy", "deadline_ms")
        assert {name: got.json[name] for name in kept} == {name: made[name] for name in kept}
        assert (await house.client.get(path)).json == got.json

    live(story)


def test_null_removes_what_is_optional() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(**FULL)
        path = f"/v1/subscriptions/{made['id']}"
        names = ("token", "headers", "policy", "deadline_ms", "description", "format")
        got = await house.client.patch(path, dict.fromkeys(names))
        assert got.status == 200
        assert {name: got.json[name] for name in names} == {
            "token": None,
            "headers": {},
            "policy": None,
            "deadline_ms": None,
            "description": "",
            "format": "standard",
        }
        for name in ("url", "types", "secret", "active"):
            got = await house.client.patch(path, {name: None})
            assert (got.status, got.fields) == (422, [name])
        got = await house.client.patch(path, {"tenant": "other"})
        assert (got.status, got.fields) == (422, ["tenant"])

    live(story)


def test_a_secret_can_be_replaced_and_is_shown_masked() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe()
        got = await house.client.patch(f"/v1/subscriptions/{made['id']}", {"secret": SECRET})
        assert got.status == 200
        assert "****LaSw" in [secret["value"] for secret in got.json["secrets"]]
        assert SECRET.encode() not in got.body

    live(story)


def test_a_masked_value_given_back_is_not_taken_for_the_value() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(**FULL)
        back = {"token": made["token"], "headers": made["headers"]}
        got = await house.client.patch(f"/v1/subscriptions/{made['id']}", back)
        assert (got.status, got.fields) == (422, ["token", "headers.X-Own", "headers.X-Short"])

    live(story)


OAUTH = {
    "oauth_token_url": "HTTPS://Auth.Example:443/token",
    "oauth_client_id": "homing",
    "oauth_client_secret": "client-secret-1234",
    "oauth_scope": "events.write",
}


def test_the_parts_of_oauth_and_basic_are_masked_and_kept() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(**OAUTH)
        path = f"/v1/subscriptions/{made['id']}"
        got = await house.client.patch(path, {"description": "x"})
        assert got.json["oauth_token_url"] == "https://auth.example/token"
        assert got.json["oauth_client_secret"] == "****1234"
        assert got.json["oauth_method"] == "client_secret_basic"
        got = await house.client.patch(path, {"token": "t"})
        assert (got.status, got.fields) == (422, ["oauth_token_url"])
        none = dict.fromkeys(OAUTH)
        basic = {"basic_user": "homing", "basic_password": "a-long-password"}
        got = await house.client.patch(path, none | basic)
        assert got.json["basic_password"] == "****"  # A password shows no characters at all.
        assert {got.json[name] for name in OAUTH} == {None}
        assert b"password" not in got.body.replace(b"basic_password", b"")

    live(story)


def test_a_new_token_url_is_checked_at_the_door() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(**OAUTH)
        path = f"/v1/subscriptions/{made['id']}"
        for url in ("http://127.0.0.1/", "https://10.0.0.1/", "https://auth.example:22/"):
            got = await house.client.patch(path, {"oauth_token_url": url})
            assert (got.status, got.fields) == (422, ["oauth_token_url"])
            wanted = {"url": URL, "types": ["*"], **OAUTH, "oauth_token_url": url}
            got = await house.client.post("/v1/subscriptions", wanted)
            assert (got.status, got.fields) == (422, ["oauth_token_url"])

    live(story)


def test_an_api_key_is_a_header_whose_value_is_masked_beside_any_authentication() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(headers={"X-Api-Key": "key-of-the-api"}, **OAUTH)
        assert made["headers"] == {"X-Api-Key": "****-api"}

    live(story)


def test_a_new_url_is_checked_at_the_door_and_moves_the_endpoint() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe()
        path = f"/v1/subscriptions/{made['id']}"
        got = await house.client.patch(path, {"url": "http://127.0.0.1/"})
        assert (got.status, got.fields) == (422, ["url"])
        got = await house.client.patch(path, {"url": "https://other.example"})
        assert got.json["url"] == "https://other.example/"
        assert got.json["endpoint"] != made["endpoint"]

    live(story)


def test_a_deleted_subscription_is_gone_and_what_was_pending_is_cancelled() -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = always(500)
        made = await house.subscribe()
        await house.publish()
        await house.settled()
        path = f"/v1/subscriptions/{made['id']}"
        got = await house.client.delete(path)
        assert (got.status, got.body) == (204, b"")
        for method in ("GET", "DELETE", "PATCH"):
            body = {"active": True} if method == "PATCH" else None
            assert (await house.client.call(method, path, json=body)).status == 404
        assert (await house.client.post(f"{path}/test")).status == 404
        assert (await house.client.get("/v1/subscriptions")).json["items"] == []
        await house.settled()
        (delivery,) = await house.deliveries()
        assert (delivery["status"], delivery["reason"]) == ("cancelled", "subscription_deleted")

    live(story)


def test_subscriptions_are_listed_by_tenant_in_pages() -> None:
    async def story(house: House) -> None:
        ids = [(await house.subscribe(tenant="acme"))["id"] for _ in range(3)]
        await house.subscribe()
        got = await house.client.get("/v1/subscriptions?tenant=acme&limit=2")
        assert [one["id"] for one in got.json["items"]] == ids[:0:-1]
        cursor = got.json["next_cursor"]
        got = await house.client.get(f"/v1/subscriptions?tenant=acme&limit=2&cursor={cursor}")
        assert [one["id"] for one in got.json["items"]] == ids[:1]
        assert got.json["next_cursor"] is None

    live(story)


def test_a_test_send_is_answered_with_its_attempt_and_counts_for_nothing() -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = always(503)
        made = await house.subscribe(token="token-1234")
        await house.client.post(f"/v1/endpoints/{made['endpoint']}/freeze")
        got = await house.client.post(f"/v1/subscriptions/{made['id']}/test")
        assert got.status == 200
        attempt = got.json
        assert (attempt["lane"], attempt["code"], attempt["decided"]) == ("test", 503, "nothing")
        assert "authorization: Bearer ****" in attempt["request_headers"]
        endpoint = (await house.client.get(f"/v1/endpoints/{made['endpoint']}")).json
        counted = {one["name"]: one["value"] for one in endpoint["counters"]}
        assert counted["attempts"] == 0

    live(story)


@pytest.mark.parametrize("key", ["sub_0000000000000", "sub_x", "dlv_0000000000000", "%01"])
def test_an_unknown_id_is_not_found(key: str) -> None:
    async def story(house: House) -> None:
        assert (await house.client.get(f"/v1/subscriptions/{key}")).status == 404

    live(story)
