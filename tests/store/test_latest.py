"""The newest event of a key in the store: bounded steps, quiet times, and their changes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from homing.model import Delivery, Order, Subscription, Work
from homing.ports import Latest, NewEvent
from homing.store import latest, rows
from homing.store.tx import Db, Tx
from store.build import NOW
from store.scene import Scene, count, every
from store.test_order import keyed, sent, stored

LATER = NOW + 7_000
QUIET, LONGEST = 5_000, 20_000


async def _scene(db: Db, **changes: object) -> tuple[Scene, Subscription]:
    """A scene whose subscription wants only the newest event of a key."""
    scene = await Scene(db).begin()
    sub = replace(scene.sub, order=Order.LATEST, **changes)

    async def work(tx: Tx) -> None:
        columns = zip(rows.COLUMNS["subscription"], rows.subscription_row(sub), strict=True)
        await tx.all("subscription_replace", **dict(columns))

    await db.run(work)
    return scene, sub


async def _publish(
    scene: Scene, sub: Subscription, *accepted_at: int, key: str = "x"
) -> list[Delivery]:
    """Publish events of one key, one after the other, as an engine does."""
    ids = []
    for at in accepted_at:
        new = _latest(keyed(scene, key, sub=sub), sub, at)
        await scene.publish([new])
        ids.append(new.deliveries[0].id)
    known = {row[0] for row in await every(scene.db, "pending")}
    return [await stored(scene.db, it) for it in ids if it in known]


def _latest(new: NewEvent, sub: Subscription, at: int) -> NewEvent:
    quiet_ms = sub.quiet_ms or 0
    (it,) = new.deliveries
    it = replace(it, accepted_at=at, due_at=at + quiet_ms)
    wants = (Latest(it.id, quiet_ms, sub.max_wait_ms or 10 * quiet_ms),)
    return replace(new, deliveries=(it,), latest=wants)


def _id(found: Work | int) -> int:
    assert isinstance(found, Work)
    return found.delivery.id


async def test_the_newest_goes_when_nothing_is_left_before_it(
    db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, sub = await _scene(db)
    monkeypatch.setattr(latest, "SUPERSEDED_MAX", 3)
    waiting = [keyed(scene, "x") for _ in range(9)]  # as with the order key
    await scene.publish(waiting)
    (newest,) = await _publish(scene, sub, NOW)  # It supersedes three of the eight.
    first = await stored(db, waiting[0].deliveries[0].id)

    one = await scene.flow.newest([first], now=LATER)
    two = await scene.flow.newest([first], now=LATER)

    assert one == {first.id: first.due_at}
    assert await count(db, "history") == 3 + 3 + 2 + 1
    assert _id(two[first.id]) == newest.id
    assert await count(db, "pending") == 1


async def test_what_comes_during_an_attempt_waits_from_the_first_of_it(db: Db) -> None:
    scene, sub = await _scene(db, quiet_ms=QUIET, max_wait_ms=LONGEST)
    (flying,) = await _publish(scene, sub, NOW)
    times = [NOW + 6_000 + 1_000 * n for n in range(5)]
    first, newest = await _publish(scene, sub, *times)  # The others are superseded.
    assert (first.accepted_at, newest.accepted_at) == (times[0], times[-1])

    result = await scene.flow.settle(sent(scene, flying, at=NOW + 10_500))
    (free,) = result.unblocked
    early = await scene.flow.newest([free], now=NOW + 10_600)

    assert free.id == first.id
    assert early == {free.id: times[-1] + QUIET}
    assert (await stored(db, free.id)).due_at == times[-1] + QUIET
    late = await scene.flow.newest([free], now=times[0] + LONGEST)
    assert _id(late[free.id]) == newest.id


async def test_a_probe_does_not_wait_for_quiet(db: Db) -> None:
    scene, sub = await _scene(db, quiet_ms=QUIET)
    older, newest = await _publish(scene, sub, NOW, NOW + 1_000)

    assert await scene.flow.newest([older], now=NOW + 1_100) == {older.id: NOW + 1_000 + QUIET}
    found = await scene.flow.newest([older], now=NOW + 1_100, wait=False)

    assert _id(found[older.id]) == newest.id


async def test_what_waits_follows_its_subscription(db: Db) -> None:
    scene, sub = await _scene(db, quiet_ms=QUIET)
    older, newest = await _publish(scene, sub, NOW, NOW + 1_000)
    ids, now = [older.id, newest.id], NOW + 1_500

    async def follow(**changes: object) -> int:
        async def work(tx: Tx) -> int:
            return await latest.follow(tx, ids, replace(sub, **changes), now=now)

        return await db.run(work)

    assert await follow(quiet_ms=600) == 1
    assert (await stored(db, older.id)).due_at == NOW + 1_000 + 600
    assert await follow(quiet_ms=60_000, max_wait_ms=60_000) == 1
    assert (await stored(db, older.id)).due_at == NOW + 60_000
    assert await follow(quiet_ms=None) == 1
    assert (await stored(db, older.id)).due_at == now
    assert (await stored(db, newest.id)).order_seq
    assert await follow(order=Order.NONE, quiet_ms=None) == 1
    assert not (await stored(db, newest.id)).order_seq
