"""Links and looks of the customer portal in every store: opened once, revoked, bounded, removed."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from homing.policy.keys import Role
from homing.policy.portal import LinkState, Logo, PortalLink, PortalSettings, Theme
from homing.store.keys import Keys
from homing.store.portal import PAST_AT_ONCE, Portal
from homing.store.tx import Db

NOW = 1_800_000_000_000
PNG = Logo("image/png", b"\x89PNG")


def link(number: int, **more: Any) -> PortalLink:
    given: dict[str, Any] = {
        "id": number,
        "tenant": "acme",
        "role": Role.MANAGER,
        "subject": "ada",
        "hash": b"h%d" % number,
        "made_by": "a key",
        "key_id": 5,
        "created_at": NOW,
        "opens_until": NOW + 1_000,
        "session_ms": 60_000,
        **more,
    }
    return PortalLink(**given)


async def made(store: Portal, one: PortalLink, *, most: int = 99, before: int = 0) -> bool:
    return await store.create_link(one, max_live=most, now=NOW, forget_before=before)


async def opened(store: Portal, number: int, *, at: int = NOW, given: bytes | None = None) -> Any:
    secret = b"h%d" % number if given is None else given
    return await store.open_link(number, given_hash=secret, session_hash=b"s", now=at)


async def test_a_link_is_opened_once_and_in_time(db: Db) -> None:
    store = Portal(db)
    assert await made(store, link(1))
    assert await store.link(1) == link(1)
    assert await store.link(2) is None
    assert await opened(store, 1, given=b"wrong") is None
    found = await opened(store, 1, at=NOW + 999)
    until = NOW + 60_999
    wanted = link(1, opened_at=NOW + 999, session_hash=b"s", session_until=until)
    assert found == wanted == await store.link(1)
    assert await opened(store, 1, at=NOW + 999) is None, "once"
    await made(store, link(2))
    assert await opened(store, 2, at=NOW + 1_000) is None, "in time"


async def test_of_two_that_open_a_link_at_once_one_does(db: Db) -> None:
    store = Portal(db)
    await made(store, link(1))
    found = await asyncio.gather(*(opened(store, 1) for _ in range(5)))
    assert sum(it is not None for it in found) == 1


async def test_a_revoked_link_cannot_be_opened_and_raises_the_version_of_the_sessions(
    db: Db,
) -> None:
    store, keys = Portal(db), Keys(db)
    for number in (1, 2):
        await made(store, link(number))
    await opened(store, 2)
    before = await keys.key_versions()
    for number in (1, 2):
        revoked = await store.revoke_link(number, now=NOW + 5)
        assert revoked is not None
        assert revoked.state(NOW + 5) is LinkState.REVOKED
        assert await store.revoke_link(number, now=NOW + 6) is None
    assert await opened(store, 1) is None
    assert (await keys.key_versions())[1] > before[1]
    assert (await keys.key_versions())[0] == before[0], "no key is read again"


async def test_all_links_of_a_tenant_are_revoked_and_no_other(db: Db) -> None:
    store = Portal(db)
    for number, tenant in ((1, "acme"), (2, "acme"), (3, "other")):
        await made(store, link(number, tenant=tenant))
    assert await store.revoke_links_of("acme", now=NOW) == 2
    found, after = await store.links(tenant=None, before_id=None, limit=9)
    assert [(it.id, it.revoked_at) for it in found] == [(3, None), (2, NOW), (1, NOW)]
    assert after is None
    page, after = await store.links(tenant="acme", before_id=None, limit=1)
    assert ([it.id for it in page], after) == ([2], 2)


async def test_the_links_and_sessions_of_a_tenant_are_bounded(db: Db) -> None:
    store = Portal(db)
    for number in (1, 2, 3):
        assert await made(store, link(number), most=3)
    await opened(store, 1)
    assert not await made(store, link(4), most=3)
    assert await store.link(4) is None
    assert await made(store, link(5, tenant="other"), most=3)
    await store.revoke_link(2, now=NOW - 1)
    assert await made(store, link(6), most=3)


async def test_links_that_ended_long_ago_are_removed_in_bounded_steps(db: Db) -> None:
    store = Portal(db)
    for number in range(1, PAST_AT_ONCE + 11):
        await made(store, link(number, opens_until=NOW + number), most=999)
    kept = link(999, opens_until=NOW + 9_999)
    await made(store, kept, most=999, before=NOW + PAST_AT_ONCE + 5)
    found, _ = await store.links(tenant=None, before_id=None, limit=500)
    assert [it.id for it in found] == [999, *range(PAST_AT_ONCE + 10, PAST_AT_ONCE, -1)]
    await made(store, link(1_000), most=999, before=NOW + PAST_AT_ONCE + 5)
    found, _ = await store.links(tenant=None, before_id=None, limit=500)
    assert len(found) == 2 + 6


async def test_the_looks_of_a_portal_are_kept_and_the_logo_apart_from_them(db: Db) -> None:
    store = Portal(db)
    assert await store.settings("acme") is None
    given = PortalSettings(
        tenant="acme",
        name="Acme ümläut",
        accent_color="#112233",
        header_color="#445566",
        theme=Theme.DARK,
        frame_ancestors=("https://a.example", "https://b.example"),
        updated_at=NOW,
    )
    stored = await store.set_settings(given, logo=PNG, keeps_logo=False)
    logo = {"logo_type": PNG.type, "logo_digest": PNG.digest, "logo_bytes": 4}
    assert stored == replace(given, **logo) == await store.settings("acme")
    assert await store.logo("acme") == PNG
    assert await store.settings("other") is None
    assert await store.logo("other") is None
    renamed = await store.set_settings(replace(given, name="New"), logo=None, keeps_logo=True)
    assert (renamed.name, renamed.logo_digest) == ("New", PNG.digest)
    bare = await store.set_settings(given, logo=None, keeps_logo=False)
    assert (bare.logo_type, bare.logo_bytes) == ("", 0)
    assert await store.logo("acme") is None
