"""Ed25519 signatures of a tenant: which requests have them, rotation, the JWK set for anybody."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.world import HOUR, Hit
from homing.policy.rotation import LIVE_MAX, OVERLAP_MS_MAX
from homing.ports.audit import AuditFilter
from homing.web.response import Response, response_bytes
from referee import accepted_by_both, accepted_v1a
from web.asgi import Client, Got
from web.browse import Browser, text
from web.house import House, live

JWKS, KEYS = "/.well-known/jwks.json", "/v1/signing-keys"


async def sent(house: House, **event: Any) -> Hit:
    """The request of an event that is published now."""
    await house.publish(**event)
    await house.settled()
    return house.world.sender.hits[-1]


def versions(hit: Hit) -> list[str]:
    """The versions of the signatures, in their order."""
    return [it.partition(",")[0] for it in hit.headers["webhook-signature"].split(" ")]


async def public_keys(house: House, query: str = "") -> list[str]:
    return [it["value"] for it in (await house.client.get(KEYS + query)).json["keys"]]


async def rotate(house: House, **body: Any) -> Got:
    return await house.client.post(f"{KEYS}/rotate", body)


async def jwks(house: House, query: str = "") -> Got:
    """As a receiver asks: without a key."""
    return await Client(house.app, key=None).get(JWKS + query)


# --- which requests -------------------------------------------------------------------------


def test_a_subscription_is_signed_with_hmac_unless_it_says_otherwise() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe()
        assert (made["signature"], made["public_keys"]) == ("hmac", [])
        assert versions(await sent(house)) == ["v1"]
        assert await public_keys(house) == []

    live(story)


def test_with_ed25519_the_key_of_the_tenant_signs_and_no_secret() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(signature="ed25519")
        (key,) = [it["value"] for it in made["public_keys"]]
        hit = await sent(house)
        assert versions(hit) == ["v1a"]
        assert accepted_v1a(hit.headers, hit.body, key)
        assert not accepted_v1a(hit.headers, hit.body + b" ", key)
        assert not accepted_by_both(hit.headers, hit.body, made["secret"], at=hit.at)

    live(story)


def test_with_both_the_foreign_libraries_verify_v1_beside_v1a() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(signature="both")
        hit = await sent(house)
        assert versions(hit) == ["v1", "v1a"]
        assert accepted_by_both(hit.headers, hit.body, made["secret"], at=hit.at)
        assert accepted_v1a(hit.headers, hit.body, made["public_keys"][0]["value"])

    live(story)


def test_a_changed_signature_holds_for_what_is_sent_next_also_for_a_test_event() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe()
        path = f"/v1/subscriptions/{made['id']}"
        changed = await house.client.patch(path, {"signature": "both"})
        (key,) = [it["value"] for it in changed.json["public_keys"]]
        assert (await house.client.post(f"{path}/test")).json["outcome"] == "delivered"
        tested = house.world.sender.hits[-1]
        assert tested.headers["homing-event-type"] == "homing.test"
        for hit in (tested, await sent(house)):
            assert versions(hit) == ["v1", "v1a"]
            assert accepted_v1a(hit.headers, hit.body, key)
        await house.client.patch(path, {"signature": None})
        assert versions(await sent(house)) == ["v1"]

    live(story)


def test_an_unknown_kind_of_signature_is_refused_and_nothing_is_stored() -> None:
    async def story(house: House) -> None:
        body = {"url": "https://a.example/", "types": ["*"], "signature": "rsa"}
        got = await house.client.post("/v1/subscriptions", body)
        assert (got.status, got.fields) == (422, ["signature"])
        assert await public_keys(house) == []

    live(story)


def test_all_subscriptions_of_a_tenant_share_its_key_and_no_other_tenant_has_it() -> None:
    async def story(house: House) -> None:
        keys = {}
        for tenant in ("acme", "other"):
            made = [
                await house.subscribe(f"https://{n}.example/", tenant=tenant, signature="ed25519")
                for n in range(2)
            ]
            (key,) = {it["public_keys"][0]["value"] for it in made}
            keys[tenant] = key
        assert len(set(keys.values())) == 2
        hit = await sent(house, tenant="acme")
        assert accepted_v1a(hit.headers, hit.body, keys["acme"])
        assert not accepted_v1a(hit.headers, hit.body, keys["other"])

    live(story)


# --- rotation -------------------------------------------------------------------------------


def test_during_a_rotation_both_keys_verify_and_then_only_the_new_one() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(signature="both")
        old = made["public_keys"][0]["value"]
        got = await rotate(house)
        assert got.status == 200
        assert [it["until"] is None for it in got.json["keys"]] == [True, False]
        new, *_ = [it["value"] for it in got.json["keys"]]
        for _ in range(2):
            hit = await sent(house)
            assert versions(hit) == ["v1", "v1a", "v1a"]
            assert [accepted_v1a(hit.headers, hit.body, it) for it in (old, new)] == [True, True]
            assert {it["kid"] for it in (await jwks(house)).json["keys"]} == {
                it["kid"] for it in got.json["keys"]
            }
            await house.world.wait(11 * HOUR)
        await house.world.wait(3 * HOUR)
        hit = await sent(house)
        assert versions(hit) == ["v1", "v1a"]
        assert [accepted_v1a(hit.headers, hit.body, it) for it in (old, new)] == [False, True]
        assert await public_keys(house) == [new]
        assert [it["kid"] for it in (await jwks(house)).json["keys"]] == [
            got.json["keys"][0]["kid"]
        ]

    live(story)


def test_without_an_overlap_the_old_key_ends_at_once() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(signature="ed25519")
        got = await rotate(house, overlap_ms=0)
        (new,) = [it["value"] for it in got.json["keys"]]
        hit = await sent(house)
        old = made["public_keys"][0]["value"]
        assert [accepted_v1a(hit.headers, hit.body, it) for it in (old, new)] == [False, True]

    live(story)


def test_many_rotations_leave_a_bounded_number_of_keys() -> None:
    async def story(house: House) -> None:
        await house.subscribe(signature="ed25519")
        for _ in range(LIVE_MAX + 3):
            got = await rotate(house, overlap_ms=OVERLAP_MS_MAX)
        assert len(got.json["keys"]) == LIVE_MAX
        assert len((await jwks(house)).json["keys"]) == LIVE_MAX
        assert len(versions(await sent(house))) == LIVE_MAX

    live(story)


def test_a_rotation_before_the_first_subscription_makes_the_first_key() -> None:
    async def story(house: House) -> None:
        (key,) = [it["value"] for it in (await rotate(house, tenant="acme")).json["keys"]]
        made = await house.subscribe(tenant="acme", signature="ed25519")
        assert [it["value"] for it in made["public_keys"]] == [key]

    live(story)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"overlap_ms": -1}, "overlap_ms"),
        ({"overlap_ms": OVERLAP_MS_MAX + 1}, "overlap_ms"),
        ({"tenant": "no such name"}, "tenant"),
        ({"private": "whsk_"}, "private"),
    ],
)
def test_a_wrong_rotation_is_refused_with_its_field(body: dict[str, Any], field: str) -> None:
    async def story(house: House) -> None:
        got = await rotate(house, **body)
        assert (got.status, got.fields) == (422, [field])

    live(story)


def test_a_manager_rotates_only_the_keys_of_its_own_tenant() -> None:
    async def story(house: House) -> None:
        given = {"name": "n", "role": "manager", "tenant": "acme"}
        manager = Client(house.app, key=(await house.client.post("/v1/keys", given)).json["key"])
        assert (await manager.post(f"{KEYS}/rotate", {})).json["tenant"] == "acme"
        refused = await manager.post(f"{KEYS}/rotate", {"tenant": "other"})
        assert refused.status == 403
        assert await public_keys(house, "?tenant=other") == []
        assert (await manager.get(f"{KEYS}?tenant=other")).json["keys"] == []

    live(story)


def test_the_audit_log_names_a_rotation_and_has_no_key() -> None:
    async def story(house: House) -> None:
        await house.subscribe(signature="ed25519", tenant="acme")
        await rotate(house, tenant="acme")
        found, _ = await house.world.audit.entries(AuditFilter(), before_id=None, limit=10)
        actions = [(it.action, it.object, it.tenant) for it in found if it.object == "signing_keys"]
        assert actions == [
            ("signing_keys.rotate", "signing_keys", "acme"),
            ("subscriptions.create", "signing_keys", "acme"),
        ]
        assert json.loads(found[0].before) == {"keys": 1}
        assert json.loads(found[0].after) == {"keys": "**** (changed)"}
        for key in await public_keys(house, "?tenant=acme"):
            assert key[5:] not in str(found)
        assert "whsk_" not in str(found)

    live(story)


# --- for anybody ----------------------------------------------------------------------------


def test_the_jwk_set_has_the_public_keys_and_nothing_private() -> None:
    async def story(house: House) -> None:
        await house.subscribe(tenant="acme", signature="ed25519")
        got = await jwks(house, "?tenant=acme")
        (key,) = got.json["keys"]
        assert key.keys() == {"kty", "crv", "x", "kid", "use", "alg"}
        assert (key["kty"], key["crv"], key["use"], key["alg"]) == (
            "OKP",
            "Ed25519",
            "sig",
            "EdDSA",
        )
        assert got.headers["cache-control"] == "public, max-age=300"
        shown = (await house.client.get(f"{KEYS}?tenant=acme")).json
        assert shown["jwks"] == "/.well-known/jwks.json?tenant=acme"
        assert [it["kid"] for it in shown["keys"]] == [key["kid"]]

    live(story)


def test_a_response_says_once_how_long_it_may_be_kept() -> None:
    kept = ((b"cache-control", b"public, max-age=300"),)
    assert response_bytes(Response(200, b"{}", headers=kept)).count(b"cache-control") == 1
    assert b"cache-control: no-store" in response_bytes(Response(200, b"{}"))


def test_an_unknown_tenant_looks_like_one_without_keys() -> None:
    async def story(house: House) -> None:
        await house.subscribe(tenant="acme")
        assert (await jwks(house, "?tenant=acme")) == (await jwks(house, "?tenant=nobody"))
        assert (await jwks(house, "?tenant=acme")).json == {"keys": []}
        assert (await jwks(house, "?tenant=no%20name")).status == 422

    live(story)


def test_the_keys_of_an_erased_tenant_are_gone_and_it_can_begin_anew() -> None:
    async def story(house: House) -> None:
        old = await house.subscribe(tenant="acme", signature="ed25519")
        body = {"tenant": "acme", "everything": True}
        assert (await house.client.post("/v1/erasures", body)).status in {200, 202}
        assert (await jwks(house, "?tenant=acme")).json == {"keys": []}
        await house.settled()
        new = await house.subscribe(tenant="acme", signature="ed25519")
        assert new["public_keys"] != old["public_keys"]
        hit = await sent(house, tenant="acme")
        assert accepted_v1a(hit.headers, hit.body, new["public_keys"][0]["value"])

    live(story)


# --- the dashboard --------------------------------------------------------------------------


def test_the_page_of_a_subscription_shows_the_public_keys_and_rotates_them() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        await browser.sign_in()
        hmac = await house.subscribe(tenant="acme")
        assert "Signing keys" not in text(await browser.get(f"/subscriptions/{hmac['id']}"))
        made = await house.subscribe("https://b.example/", tenant="acme", signature="ed25519")
        page = f"/subscriptions/{made['id']}"
        shown = await browser.get(page)
        assert made["public_keys"][0]["value"] in text(shown)
        assert b'href="/.well-known/jwks.json?tenant=acme"' in shown.body
        done = await browser.form(page, f"{page}/signing-keys/rotate")
        assert (done.status, done.headers["location"]) == (303, page)
        shown = await browser.get(page)
        for key in await public_keys(house, "?tenant=acme"):
            assert key in text(shown)
        assert "signs until" in text(shown)

    live(story)


def test_a_subscription_made_with_ed25519_in_the_dashboard_shows_no_secret() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        await browser.sign_in()
        given = {"url": "https://a.example/", "types": "*", "format": "standard", "tenant": "acme"}
        for signature, shows in (("ed25519", False), ("both", True)):
            made = await browser.form(
                "/subscriptions/new", "/subscriptions", signature=signature, **given
            )
            assert made.status == 303, text(made)
            page = await browser.get(made.headers["location"])
            assert ("whsec_" in text(page)) is shows
            assert "whpk_" in text(page)

    live(story)
