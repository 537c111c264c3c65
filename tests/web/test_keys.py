"""Keys: made, shown once, used, expired, revoked; wrong ones are slowed down."""

from __future__ import annotations

import asyncio
import hashlib
import re
from typing import Any

import pytest

from homing.app.auth import Authenticator
from homing.app.throttle import SOURCES_MAX, Throttle, network_of
from homing.engine.keys import ApiKeys
from homing.errors import NotAuthorized, TooMany
from homing.policy.keys import Role
from homing.store.keys import Keys as KeyTable
from web.asgi import KEY, Client
from web.house import House, live

DAY_MS = 86_400_000


async def made(house: House, **more: Any) -> dict[str, Any]:
    body = {"name": "shop", "role": "viewer", "tenant": "acme", **more}
    got = await house.client.post("/v1/keys", body)
    assert got.status == 201, got.body
    response: dict[str, Any] = got.json
    return response


async def status(house: House, key: str, path: str = "/v1/events") -> int:
    return (await Client(house.app, key=key).get(path)).status


def test_a_key_is_shown_once_and_kept_as_a_hash() -> None:
    async def story(house: House) -> None:
        key = await made(house)
        assert re.fullmatch(r"hk_[a-z2-7]{13}_[A-Za-z0-9_-]{43}", key["key"])
        assert key["key"].startswith(f"hk_{key['prefix']}_")
        (row,) = (await house.client.get("/v1/keys")).json["items"]
        assert row == {name: value for name, value in key.items() if name != "key"}
        secret = key["key"].rpartition(f"{key['prefix']}_")[2]
        _, (kept,) = await KeyTable(house.world.db).live_keys()
        assert kept.hash == hashlib.sha256(secret.encode()).digest()
        assert secret not in repr(kept)

    live(story)


def test_no_two_keys_are_alike() -> None:
    async def story(house: House) -> None:
        keys = {(await made(house))["key"] for _ in range(50)}
        assert len(keys) == 50

    live(story)


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"name": ""}, ["name"]),
        ({"name": "a\nb"}, ["name"]),
        ({"name": "x" * 101}, ["name"]),
        ({"role": "king"}, ["role"]),
        ({"role": "admin", "tenant": "acme"}, ["tenant"]),
        ({"tenant": "a b"}, ["tenant"]),
        ({"expires": "soon"}, ["expires"]),
        ({"expires": "2001-01-01T00:00:00Z"}, ["expires"]),
        ({"expires": "0s"}, ["expires"]),
        ({"expires": "999999999d"}, ["expires"]),
        ({"secret": "mine"}, ["secret"]),
    ],
)
def test_a_wrong_field_is_named(body: dict[str, Any], fields: list[str]) -> None:
    async def story(house: House) -> None:
        got = await house.client.post("/v1/keys", {"name": "n", "role": "viewer", **body})
        assert got.status == 422
        assert got.fields == fields
        assert (await house.client.get("/v1/keys")).json["items"] == []

    live(story)


def test_a_key_ends_when_it_expires() -> None:
    async def story(house: House) -> None:
        key = await made(house, expires="1d")
        assert await status(house, key["key"]) == 200
        await house.world.wait(DAY_MS - 60_000)
        assert await status(house, key["key"]) == 200
        await house.world.wait(60_000)
        assert await status(house, key["key"]) == 401

    live(story)


def test_a_revoked_key_opens_nothing_at_once_and_stays_in_the_list() -> None:
    async def story(house: House) -> None:
        key, other = await made(house), await made(house)
        assert await status(house, key["key"]) == 200
        assert (await house.client.delete(f"/v1/keys/{key['id']}")).status == 204
        assert await status(house, key["key"]) == 401
        assert await status(house, other["key"]) == 200
        again = await house.client.delete(f"/v1/keys/{key['id']}")
        never = await house.client.delete("/v1/keys/key_0000000000001")
        assert (again.status, again.body) == (404, never.body)
        rows = {one["id"]: one for one in (await house.client.get("/v1/keys")).json["items"]}
        assert rows[key["id"]]["revoked_at"] is not None
        assert rows[other["id"]]["revoked_at"] is None

    live(story)


def test_what_another_process_revokes_is_known_here_within_a_second() -> None:
    async def story(house: House) -> None:
        store, clock = KeyTable(house.world.db), house.world.clock
        here, there = ApiKeys(store, clock, life_ms=500), ApiKeys(store, clock, node=1, life_ms=500)
        door = Authenticator(KEY, here, clock.now)
        key, text = await there.create("n", Role.VIEWER, "acme", None)
        header = f"Bearer {text}".encode()
        assert (await door.caller_of(header, "")).tenant == "acme"
        await there.revoke(key.id)
        await house.world.wait(1_000)
        assert door.known(header) is None
        with pytest.raises(NotAuthorized):
            await door.caller_of(header, "")
        later, text = await there.create("n", Role.VIEWER, "acme", None)
        await house.world.wait(1_000)
        assert (await door.caller_of(f"Bearer {text}".encode(), "")).name == later.name

    live(story)


def test_a_key_that_was_found_good_is_let_in_without_a_statement() -> None:
    async def story(house: House) -> None:
        key = await made(house)
        door = Authenticator(KEY, house.api_keys, house.world.clock.now)
        header = f"Bearer {key['key']}".encode()
        assert door.known(header) is None
        caller = await door.caller_of(header, "")
        before = house.world.db.statements
        for _ in range(100):
            assert door.known(header) == caller
            assert await door.caller_of(header, "") == caller
        assert house.world.db.statements == before
        for spelled in (f"bearer {key['key']}", f"Bearer  {key['key']}", f"Bearer {key['key']} "):
            assert (await door.caller_of(spelled.encode(), "")).key_id == caller.key_id
        assert len(door._known) == 2  # However it is spelled, it is held once.

    live(story)


def test_when_a_key_was_used_is_written_at_most_once_a_minute() -> None:
    async def story(house: House) -> None:
        key = await made(house)
        written: list[int] = []
        store = house.api_keys._store
        plain = store.keys_used

        async def counted(used: Any) -> None:
            written.append(len(used))
            await plain(used)

        store.keys_used = counted  # type: ignore[method-assign]
        for _ in range(300):
            assert await status(house, key["key"]) == 200
            await house.world.wait(1_000)
        assert len(written) == 5
        (row,) = (await house.client.get("/v1/keys")).json["items"]
        assert row["last_used_at"] > row["created_at"]
        await house.world.wait(600_000)
        assert len(written) <= 6

    live(story)


def test_lists_of_keys_come_in_pages_and_by_tenant() -> None:
    async def story(house: House) -> None:
        ids = [(await made(house, tenant=f"t{n % 2}"))["id"] for n in range(7)]
        found: list[str] = []
        cursor = ""
        while True:
            page = (await house.client.get(f"/v1/keys?limit=2{cursor}")).json
            found += [one["id"] for one in page["items"]]
            if page["next_cursor"] is None:
                break
            cursor = f"&cursor={page['next_cursor']}"
        assert found == ids[::-1]
        of_one = (await house.client.get("/v1/keys?tenant=t1")).json["items"]
        assert [one["id"] for one in of_one] == ids[1::2][::-1]

    live(story)


def test_wrong_keys_are_slowed_down_per_source_and_right_ones_never_wait() -> None:
    async def story(house: House) -> None:
        clock = house.world.clock
        door = Authenticator(KEY, house.api_keys, clock.now)
        began = clock.now()

        async def wrong(source: str) -> int:
            with pytest.raises(NotAuthorized):
                await door.caller_of(b"Bearer wrong", source)
            return clock.now() - began

        assert [await wrong("192.0.2.1") for _ in range(10)] == [0] * 10
        assert await wrong("192.0.2.1") == 1_000
        assert await wrong("192.0.2.2") == 1_000  # another source has its own
        held = [
            asyncio.create_task(door.caller_of(b"Bearer wrong", "192.0.2.1")) for _ in range(40)
        ]
        await asyncio.sleep(0)
        assert (await door.caller_of(b"Bearer " + KEY.encode(), "192.0.2.1")).role is Role.ADMIN
        assert clock.now() - began == 1_000
        responses = await asyncio.gather(*held, return_exceptions=True)
        assert {type(one) for one in responses} == {NotAuthorized, TooMany}
        assert clock.now() - began <= 12_000
        began += 3_600_000
        await house.world.wait(3_600_000)
        assert await wrong("192.0.2.1") <= 12_000

    live(story)


def test_too_many_wrong_keys_are_a_429_with_retry_after() -> None:
    async def story(house: House) -> None:
        wrong = Client(house.app, key="wrong")
        responses = await asyncio.gather(*(wrong.get("/v1/events") for _ in range(40)))
        last = responses[-1]
        assert (last.status, last.problem.code) == (429, "too_many")
        assert int(last.headers["retry-after"]) == 6
        assert await status(house, KEY) == 200

    live(story)


def test_sources_are_forgotten_before_memory_fills() -> None:
    async def story(house: House) -> None:
        throttle = Throttle(house.world.clock.now)
        for number in range(SOURCES_MAX + 500):
            await throttle.wrong(f"source {number}")
        assert len(throttle) == SOURCES_MAX

    live(story)


def test_the_addresses_of_one_ipv6_customer_are_one_source() -> None:
    assert network_of("2001:db8:1:2::1") == network_of("2001:db8:1:2:ffff::9")
    assert network_of("2001:db8:1:2::1") != network_of("2001:db8:1:3::1")
    assert network_of("192.0.2.1") == "192.0.2.1"
    assert network_of("") == ""
