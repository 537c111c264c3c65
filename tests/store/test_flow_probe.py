"""A probe takes the oldest delivery never attempted, else the next one in a round."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from homing.errors import StaleEndpoints
from homing.model import Endpoint, Work
from homing.store import rows
from homing.store.admin import Admin
from homing.store.tx import Db
from store.build import NOW
from store.scene import Scene, every

NEXT = NOW + 600_000


async def take(
    scene: Scene, endpoint: Endpoint | None = None, *, now: int = NOW, skip_expired: bool = True
) -> Work | None:
    return await scene.flow.take_probe(
        endpoint or scene.endpoint, next_probe_at=NEXT, now=now, skip_expired=skip_expired
    )


async def stored(scene: Scene) -> Endpoint:
    (row,) = await every(scene.db, "endpoint")
    return rows.endpoint(row)


async def test_the_oldest_delivery_never_attempted_is_taken(db: Db) -> None:
    scene = await Scene(db).begin()
    tried, first, _ = await scene.deliver(3)
    await scene.tried(tried, due_at=NOW + 5)

    work = await take(scene)

    assert work is not None
    assert work.delivery == first
    assert await stored(scene) == replace(
        scene.endpoint, next_probe_at=NEXT, probe_after_id=first.id
    )


async def test_tried_deliveries_take_turns(db: Db) -> None:
    scene = await Scene(db).begin()
    deliveries = await scene.deliver(3)
    for delivery in deliveries:
        await scene.tried(delivery, due_at=NOW + 1_000 - delivery.id % 7)
    taken = []
    for _ in range(4):
        work = await take(scene, await stored(scene))
        assert work is not None
        taken.append(work.delivery.id)

    first, second, third = (it.id for it in deliveries)
    assert taken == [first, second, third, first]


async def test_with_nothing_pending_nothing_is_written(db: Db) -> None:
    scene = await Scene(db).begin()

    assert await take(scene) is None
    assert await stored(scene) == scene.endpoint


async def test_what_is_past_its_window_is_passed_over(db: Db) -> None:
    scene = await Scene(db).begin()
    old, tried, fresh = await scene.deliver(3)
    await scene.rewrite(replace(old, expires_at=NOW + 10))
    await scene.rewrite(replace(tried, expires_at=NOW + 10, attempts=1))

    passed = await take(scene, now=NOW + 10)
    any_one = await take(scene, now=NOW + 10, skip_expired=False)

    assert passed is not None
    assert passed.delivery.id == fresh.id
    assert any_one is not None
    assert any_one.delivery.id == old.id
    await scene.rewrite(replace(fresh, expires_at=NOW + 10))
    assert await take(scene, now=NOW + 10) is None


async def test_a_probe_on_an_old_generation_is_refused(db: Db) -> None:
    scene = await Scene(db).begin()
    await scene.deliver(1)
    await Admin(db).set_endpoint(scene.endpoint, seen=scene.endpoint, transition=None, notices=())

    with pytest.raises(StaleEndpoints) as stale:
        await take(scene)

    assert stale.value.endpoint_ids == {scene.endpoint.id}
    assert (await stored(scene)).next_probe_at is None
