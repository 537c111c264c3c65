"""The subscription that sends the old version for five minutes follows the one it stands in for."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from engine.world import Hit, always
from homing.model import show_id
from homing.policy.signature import Signer
from homing.policy.workfront import BOTH_VERSIONS_MS
from homing.policy.workfront_ids import read_either_id
from homing.web.workfront.api import BASE
from web.browse import Browser, text
from web.house import House, live
from web.test_workfront import URL, create

NEW_URL = "https://receiver.example/new-hook"  # of the same origin, so the token stays
SECRET = "whsec_" + "QUJD" * 8
MINUTE = 60_000


async def update(house: House, status: str = "CUR") -> None:
    new = {"ID": "5e7", "objCode": "PROJ", "status": status}
    await house.publish(
        type="PROJ.UPDATE", data={"newState": new, "oldState": {"ID": "5e7", "status": "PLN"}}
    )


async def two_versions(house: House, **more: Any) -> str:
    """A subscription whose version was just changed."""
    made = await create(house, **more)
    got = await house.client.call("PUT", f"{BASE}/{made}/version", json={"version": "v1"})
    assert got.status == 200, got.body
    return made


async def sent(house: House) -> dict[str, Hit]:
    """What is sent of an update, by version."""
    house.world.sender.hits.clear()
    await update(house)
    await house.settled()
    hits = house.world.sender.hits
    by_version = {json.loads(hit.body)["subscriptionVersion"]: hit for hit in hits}
    assert len(by_version) == len(hits)
    return by_version


def signed_by(hit: Hit, *secrets: str) -> bool:
    """Whether these secrets, and no others, have signed."""
    number, at = hit.headers["webhook-id"].encode(), hit.headers["webhook-timestamp"].encode()
    made = {Signer(secret).sign(number, at, hit.body).decode() for secret in secrets}
    return made == set(hit.headers["webhook-signature"].split(" "))


def is_of(shown: dict[str, Any], made: str) -> bool:
    return bool(shown["workfront"]["id"] == made)


async def twin_of(house: House, made: str) -> dict[str, Any]:
    everything = (await house.client.get("/v1/subscriptions")).json["items"]
    (twin,) = [it for it in everything if it["workfront"]["twin_of"] and is_of(it, made)]
    return dict(twin)


async def by_api(house: House, made: str, **changes: Any) -> None:
    got = await house.client.patch(f"/v1/subscriptions/{made}", changes)
    assert got.status == 200, got.body


async def by_dashboard(house: House, made: str, **changes: Any) -> None:
    browser = Browser(house.app)
    await browser.sign_in()
    at = f"/subscriptions/{made}"
    fields = {
        "url": URL,
        "types": "PROJ.UPDATE",
        "token": "****",
        **{name: str(value) for name, value in changes.items()},
    }
    fields["active"] = "on" if changes.get("active", True) else ""
    got = await browser.form(f"{at}/edit", at, **fields)
    assert got.status == 303, text(got)


Door = Callable[..., Awaitable[None]]
DOORS = pytest.mark.parametrize("change", [by_api, by_dashboard], ids=["api", "dashboard"])


@DOORS
def test_a_changed_url_and_token_reach_both_versions(change: Door) -> None:
    async def story(house: House) -> None:
        made = await two_versions(house)
        await change(house, made, url=NEW_URL, token="a-new-token-1234")
        hits = await sent(house)
        assert set(hits) == {"v1", "v2"}
        assert {hit.url for hit in hits.values()} == {NEW_URL}
        tokens = {hit.headers["authorization"] for hit in hits.values()}
        assert tokens == {"Bearer a-new-token-1234"}

    live(story)


@DOORS
def test_what_is_pending_in_the_old_version_follows_to_the_new_url(change: Door) -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = always(500)
        made = await two_versions(house)
        await update(house)
        await house.world.wait(10 * MINUTE)  # Nothing new goes in the old version any more.
        await change(house, made, url=NEW_URL, token="a-new-token-1234")
        house.world.sender.hits.clear()
        await house.world.wait(60 * MINUTE)
        hits = house.world.sender.hits
        assert {hit.url for hit in hits} == {NEW_URL}
        assert sorted(json.loads(hit.body)["subscriptionVersion"] for hit in hits) == ["v1", "v2"]

    live(story)


def test_a_withdrawn_secret_signs_neither_version() -> None:
    async def story(house: House) -> None:
        made = await two_versions(house)
        path = f"/v1/subscriptions/{made}/secret/rotate"
        first = (await house.client.post(path, {"overlap_ms": 60_000})).json["secret"]
        hits = await sent(house)
        assert not any(signed_by(hit, first) for hit in hits.values()), "the older one signs too"
        got = await house.client.post(path, {"secret": SECRET, "overlap_ms": 0})
        assert got.status == 200
        hits = await sent(house)
        assert set(hits) == {"v1", "v2"}
        assert all(signed_by(hit, SECRET) for hit in hits.values())

    live(story)


def test_in_a_rotation_both_versions_are_signed_by_all_live_secrets() -> None:
    async def story(house: House) -> None:
        made = await create(house)
        path = f"/v1/subscriptions/{made}/secret/rotate"
        old = (await house.client.post(path, {"overlap_ms": 0})).json["secret"]
        await house.client.post(path, {"secret": SECRET, "overlap_ms": 2 * MINUTE})
        await house.client.call("PUT", f"{BASE}/{made}/version", json={"version": "v1"})
        assert all(signed_by(hit, SECRET, old) for hit in (await sent(house)).values())
        await house.world.wait(2 * MINUTE)
        hits = await sent(house)
        assert set(hits) == {"v1", "v2"}
        assert all(signed_by(hit, SECRET) for hit in hits.values())

    live(story)


@DOORS
def test_an_inactive_subscription_gets_neither_version_and_an_active_one_both(change: Door) -> None:
    async def story(house: House) -> None:
        made = await two_versions(house)
        await change(house, made, active=False)
        assert await sent(house) == {}
        await change(house, made, active=False, url=NEW_URL)
        await change(house, made, active=True, url=NEW_URL)
        hits = await sent(house)
        assert {(version, hit.url) for version, hit in hits.items()} == {
            ("v1", NEW_URL),
            ("v2", NEW_URL),
        }

    live(story)


def test_a_version_that_is_changed_while_inactive_is_sent_in_both_once_active() -> None:
    async def story(house: House) -> None:
        made = await create(house)
        await by_api(house, made, active=False)
        await house.client.call("PUT", f"{BASE}/{made}/version", json={"version": "v1"})
        assert await sent(house) == {}
        await by_api(house, made, active=True, token="a-new-token-1234")
        hits = await sent(house)
        assert set(hits) == {"v1", "v2"}
        assert {hit.headers["authorization"] for hit in hits.values()} == {
            "Bearer a-new-token-1234"
        }

    live(story)


@DOORS
def test_changed_filters_hold_for_both_versions(change: Door) -> None:
    async def story(house: House) -> None:
        made = await two_versions(house)
        filters: Any = [{"fieldName": "status", "fieldValue": "DED"}]
        given = filters if change is by_api else json.dumps(filters)
        await change(house, made, filters=given)
        assert await sent(house) == {}

    live(story)


def test_headers_deadline_rate_and_policy_follow_too() -> None:
    async def story(house: House) -> None:
        made = await two_versions(house)
        await by_api(house, made, headers={"x-a": "b"}, deadline_ms=2_000, rate_per_second=50)
        hits = await sent(house)
        assert {hit.headers.get("x-a") for hit in hits.values()} == {"b"}
        twin = await twin_of(house, made)
        assert (twin["deadline_ms"], twin["rate_per_second"]) == (2_000, 50)

    live(story)


@pytest.mark.parametrize("door", ["api", "workfront", "dashboard"])
def test_deleted_from_any_door_both_are_gone(door: str) -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = always(500)
        made = await two_versions(house)
        await update(house)
        await house.settled()
        if door == "api":
            await house.client.delete(f"/v1/subscriptions/{made}")
        elif door == "workfront":
            await house.client.delete(f"{BASE}/{made}")
        else:
            browser = Browser(house.app)
            await browser.sign_in()
            at = f"/subscriptions/{made}"
            await browser.form(at, f"{at}/delete")
        assert (await house.client.get("/v1/subscriptions")).json["items"] == []
        assert await sent(house) == {}
        await house.world.wait(60 * MINUTE)
        assert {one["status"] for one in await house.deliveries()} == {"cancelled"}

    live(story)


def test_the_twin_itself_is_not_changed_by_hand() -> None:
    async def story(house: House) -> None:
        made = await two_versions(house)
        twin = (await twin_of(house, made))["id"]
        for got in (
            await house.client.patch(f"/v1/subscriptions/{twin}", {"url": NEW_URL}),
            await house.client.post(f"/v1/subscriptions/{twin}/secret/rotate", {}),
        ):
            assert (got.status, got.problem.code) == (409, "conflict")
            assert show_id("sub", read_either_id("sub", made) or 0) in got.problem.detail
        assert (await house.client.delete(f"/v1/subscriptions/{twin}")).status == 204
        await by_api(house, made, url=NEW_URL)
        assert set(await sent(house)) == {"v1"}
        await house.client.call("PUT", f"{BASE}/{made}/version", json={"version": "v2"})
        assert set(await sent(house)) == {"v1", "v2"}

    live(story)


def test_a_change_of_both_is_one_version_of_the_catalog() -> None:
    """Nobody sees one of them changed and the other not."""

    async def story(house: House) -> None:
        made = await two_versions(house)
        await by_api(house, made, url=NEW_URL)
        twin = (await twin_of(house, made))["id"]
        views = house.world.views
        numbers = [read_either_id("sub", it) or 0 for it in (made, twin)]
        rows = [await views.subscription(number) for number in numbers]
        assert len({row.version for row in rows if row is not None}) == 1

    live(story)


# --- the end of the five minutes --------------------------------------------------------------


async def listed(house: House) -> dict[str, bool]:
    """Whether each listed subscription is active, by the version that it sends."""
    items = (await house.client.get("/v1/subscriptions")).json["items"]
    return {one["workfront"]["version"]: one["active"] for one in items}


def test_after_five_minutes_there_is_one_subscription_again() -> None:
    async def story(house: House) -> None:
        await two_versions(house)
        assert set(await sent(house)) == {"v1", "v2"}
        assert await listed(house) == {"v1": True, "v2": True}
        await house.world.wait(BOTH_VERSIONS_MS)
        assert await listed(house) in ({"v1": True}, {"v1": True, "v2": False})
        await house.world.wait(2 * MINUTE)
        assert await listed(house) == {"v1": True}
        assert set(await sent(house)) == {"v1"}

    live(story)


def test_deliveries_in_the_old_version_are_finished_first() -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = always(500)
        made = await two_versions(house)
        await update(house)
        await house.world.wait(30 * MINUTE)
        assert await listed(house) == {"v1": True, "v2": False}
        await by_api(house, made, url=NEW_URL)  # It follows, and does not begin again.
        assert await listed(house) == {"v1": True, "v2": False}
        await house.world.wait(3 * 60 * MINUTE)
        assert {one["status"] for one in await house.deliveries()} == {"delivered"}
        assert await listed(house) == {"v1": True}

    live(story)


def test_a_second_change_of_the_version_begins_five_minutes_again() -> None:
    async def story(house: House) -> None:
        made = await two_versions(house)
        await house.world.wait(BOTH_VERSIONS_MS + 1_000)
        await house.client.call("PUT", f"{BASE}/{made}/version", json={"version": "v2"})
        await house.world.wait(4 * MINUTE)
        assert set(await sent(house)) == {"v1", "v2"}
        await house.world.wait(3 * MINUTE)
        assert await listed(house) == {"v2": True}
        assert set(await sent(house)) == {"v2"}

    live(story)


@pytest.mark.parametrize("after_ms", [0, 4 * MINUTE, 30 * MINUTE])
def test_it_ends_after_a_restart_too(after_ms: int) -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = always(500)
        await two_versions(house)
        await update(house)
        await house.world.wait(after_ms)
        await house.world.crash()
        later = House(house.world)
        await house.world.wait(BOTH_VERSIONS_MS + 2 * MINUTE)
        assert await listed(later) == {"v1": True, "v2": False}
        del house.world.sender.scripts[URL]
        await house.world.wait(3 * 60 * MINUTE)
        assert await listed(later) == {"v1": True}

    live(story)


def test_it_never_counts_for_the_quota_of_subscriptions() -> None:
    async def story(house: House) -> None:
        await two_versions(house)
        assert await house.world.views.subscriptions_of("default", limit=9) == 1
        await house.world.wait(10 * MINUTE)
        await create(house, url=NEW_URL)
        assert await house.world.views.subscriptions_of("default", limit=9) == 2

    live(story)
