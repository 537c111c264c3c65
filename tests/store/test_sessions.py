"""Sessions of the dashboard in every store: opening, ending, and the version that ending raises."""

from __future__ import annotations

import asyncio

from homing.ports import KeySession
from homing.store.keys import PAST_AT_ONCE, Keys
from homing.store.tx import Db

NOW = 1_800_000_000_000


def session(number: int, *, holder: str = "holder", since: int | None = None) -> KeySession:
    return KeySession(f"{number:032x}", holder, NOW + number if since is None else since)


async def opened(store: Keys, one: KeySession, *, most: int = 9, too_old: int = 0) -> list[str]:
    ended = await store.open_session(one, max_sessions=most, too_old=too_old)
    assert ended is not None
    return ended


async def test_a_sign_in_link_opens_one_session_and_no_other(db: Db) -> None:
    store = Keys(db)
    for number, link in ((1, "aa"), (2, "aa"), (3, "bb")):
        ended = await store.open_session(session(number), max_sessions=9, too_old=0, link=link)
        assert (ended is None) is (number == 2)
    assert [await store.has_session(session(it).id) for it in (1, 2, 3)] == [True, False, True]


async def test_a_session_is_there_until_it_ends(db: Db) -> None:
    store = Keys(db)
    for number in (1, 2):
        assert await opened(store, session(number)) == []
    before = await store.key_versions()
    await store.end_session(session(1).id)
    assert not await store.has_session(session(1).id)
    assert await store.has_session(session(2).id)
    assert not await store.has_session("never")
    keys, sessions = await store.key_versions()
    assert keys == before[0], "no key is read again for a sign-out"
    assert sessions > before[1]
    await store.end_session(session(1).id)


async def test_a_new_session_raises_no_version(db: Db) -> None:
    store = Keys(db)
    before = await store.key_versions()
    await opened(store, session(1))
    assert await store.key_versions() == before


async def test_beyond_the_most_of_a_key_its_oldest_ends(db: Db) -> None:
    store = Keys(db)
    await opened(store, session(99, holder="other", since=NOW - 9))
    for number in range(1, 4):
        assert await opened(store, session(number), most=3) == []
    before = await store.key_versions()
    assert await opened(store, session(4), most=3) == [session(1).id]
    assert (await store.key_versions())[1] > before[1]
    assert [await store.has_session(session(it).id) for it in (1, 2, 3, 4, 99)] == [
        False,
        True,
        True,
        True,
        True,
    ]


async def test_what_is_too_old_is_removed_in_bounded_steps(db: Db) -> None:
    store = Keys(db)
    for number in range(PAST_AT_ONCE + 5):
        await opened(store, session(number, holder=f"h{number}", since=NOW))
    await opened(store, session(1_000, since=NOW + 9), too_old=NOW + 1)
    assert await count(db) == 5 + 1
    await opened(store, session(1_001, since=NOW + 9), too_old=NOW + 1)
    assert await count(db) == 2


async def test_the_same_key_signs_in_at_many_places_at_once(db: Db) -> None:
    store = Keys(db)
    await asyncio.gather(*(opened(store, session(number), most=4) for number in range(12)))
    await opened(store, session(50), most=4)
    assert await count(db) == 4


async def count(db: Db) -> int:
    async def work(tx: object) -> int:
        row = await tx.one("session_count")  # type: ignore[attr-defined]
        return int(row[0])

    return await db.run(work)
