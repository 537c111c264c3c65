"""API keys in every store: their fields, the version that changes raise, their order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from homing.policy.keys import ApiKey, Role, read_key, write_key
from homing.store.keys import Keys
from homing.store.tx import Db, Tx

NOW = 1_800_000_000_000


def key(number: int, **more: object) -> ApiKey:
    made = ApiKey(
        id=number,
        prefix=f"prefix{number:07d}",
        hash=bytes([number]) * 32,
        name=f"key {number} é",
        role=Role.MANAGER,
        tenant="acme",
        created_at=NOW,
    )
    return replace(made, **more)


async def test_keys_come_back_as_they_were(db: Db) -> None:
    store = Keys(db)
    full = key(1, expires_at=NOW + 1, role=Role.VIEWER)
    admin = key(2, tenant=None, role=Role.ADMIN)
    assert await store.create_key(full, max_keys=10)
    assert await store.create_key(admin, max_keys=10)
    assert (await store.live_keys())[1] == [full, admin]
    assert await store.keys(tenant=None, before_id=None, limit=10) == ([admin, full], None)
    assert await store.keys(tenant=None, before_id=None, limit=1) == ([admin], 2)
    assert await store.keys(tenant=None, before_id=2, limit=1) == ([full], None)
    assert await store.keys(tenant="acme", before_id=None, limit=10) == ([full], None)
    assert await store.keys(tenant="other", before_id=None, limit=10) == ([], None)


async def test_what_is_made_or_revoked_raises_the_version_and_use_does_not(db: Db) -> None:
    store = Keys(db)
    versions = [(await store.key_versions())[0]]
    await store.create_key(key(1), max_keys=10)
    versions.append((await store.key_versions())[0])
    await store.revoke_key(1, now=NOW + 5)
    versions.append((await store.key_versions())[0])
    assert versions == sorted(set(versions))
    await store.keys_used([(1, NOW + 9), (404, NOW)])
    assert (await store.key_versions())[0] == versions[-1]
    assert (await store.live_keys())[0] == versions[-1]


async def test_a_failover_does_not_give_the_version_of_a_lost_change_again(db: Any) -> None:
    """A process that has read the lost change would not read the new one: a revoked key."""
    if db.dialect == "sqlite":
        pytest.skip("one process has the file: there is no failover")
    store = Keys(db)
    await store.create_key(key(1), max_keys=10)
    before = await store.key_versions()
    seen = set[tuple[int, int]]()
    for number in (2, 3):
        await store.create_key(key(number), max_keys=10)
        await db.run(_end_sessions)
        seen |= set(enumerate(await store.key_versions()))
        await db.raw(
            lambda run: run(f"UPDATE key_version SET version = {before[0]}, sessions = {before[1]}")
        )
    assert len(seen) == 4


async def _end_sessions(tx: Tx) -> None:
    await tx.all("sessions_raise")


async def test_a_key_is_revoked_once(db: Db) -> None:
    store = Keys(db)
    await store.create_key(key(1), max_keys=10)
    assert await store.revoke_key(1, now=NOW + 5) == key(1, revoked_at=NOW + 5)
    assert await store.revoke_key(1, now=NOW + 6) is None
    assert await store.revoke_key(2, now=NOW + 6) is None
    assert (await store.live_keys())[1] == []
    assert (await store.keys(tenant=None, before_id=None, limit=9))[0][0].revoked_at == NOW + 5


async def test_the_latest_use_is_kept(db: Db) -> None:
    store = Keys(db)
    await store.create_key(key(1), max_keys=10)
    for at in (NOW + 7, NOW + 3, NOW + 8):
        await store.keys_used([(1, at)])
    assert (await store.live_keys())[1][0].last_used_at == NOW + 8


async def test_there_are_never_more_than_the_most(db: Db) -> None:
    store = Keys(db)
    made = await asyncio.gather(*(store.create_key(key(n), max_keys=3) for n in range(1, 7)))
    assert sum(made) == 3
    found = (await store.live_keys())[1]
    assert len(found) == 3
    await store.revoke_key(found[0].id, now=NOW)
    assert await store.create_key(key(9), max_keys=3)


@pytest.mark.parametrize("cut", [slice(0, -1), slice(1, None), slice(0, 0)])
def test_only_a_whole_key_reads_as_a_key(cut: slice) -> None:
    text = write_key(bytes(range(40))).encode()
    assert read_key(text) is not None
    assert read_key(text[cut]) is None
    assert read_key(text + b"\n") is None
    assert read_key(text.replace(b"hk_", b"HK_")) is None
