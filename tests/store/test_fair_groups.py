"""Fair groups in the store: rows of each group in turn, whatever the backlog of one of them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from homing.model import PART_FAIR, Delivery, State, Work
from homing.ports import DueAsk, DueRows
from homing.store.tx import Db
from store.build import NOW
from store.scene import Scene

A, B, C = PART_FAIR, PART_FAIR + 7, PART_FAIR + 4_000


def ids(works: tuple[Work, ...]) -> list[int]:
    return [it.delivery.id for it in works]


async def publish(scene: Scene, *parts: int) -> list[Delivery]:
    events = [scene.make.event(scene.sub) for _ in parts]
    events = [
        replace(new, deliveries=(replace(new.deliveries[0], fair_part=part),))
        for new, part in zip(events, parts, strict=True)
    ]
    await scene.publish(events)
    return scene.stored(*events)


async def due(scene: Scene, *, after: int = 0, fresh: int = 10, since: int = NOW) -> DueRows:
    ask = DueAsk(scene.endpoint.id, since, fresh, 10, scene.endpoint.bucket, after)
    (reply,) = await scene.flow.due([ask], now=NOW + 1_000)
    return reply


async def test_groups_take_turns_and_rows_of_a_group_are_in_order(db: Db) -> None:
    scene = await Scene(db).begin()
    a1, a2, a3, b1, none, c1 = await publish(scene, A, A, A, B, 0, C)

    reply = await due(scene)

    assert ids(reply.fresh) == [it.id for it in (a1, b1, c1, none, a2, a3)]
    assert reply.fresh[0].delivery == a1
    assert not reply.more_fresh
    assert ids((await due(scene, after=A)).fresh)[:4] == [b1.id, c1.id, none.id, a1.id]
    assert ids((await due(scene, after=C)).fresh)[:4] == [none.id, a1.id, b1.id, c1.id]


@pytest.mark.parametrize("fresh", [1, 2, 3])
async def test_a_small_request_gets_the_groups_that_are_next(db: Db, fresh: int) -> None:
    scene = await Scene(db).begin()
    made = await publish(scene, *([A] * 300), B, C)

    reply = await due(scene, after=A, fresh=fresh)

    assert ids(reply.fresh) == [made[300].id, made[301].id, made[0].id][:fresh]
    assert reply.more_fresh


async def test_a_lane_that_wants_nothing_is_still_told_of(db: Db) -> None:
    scene = await Scene(db).begin()
    await publish(scene, A)
    reply = await due(scene, fresh=0)
    assert (reply.fresh, reply.more_fresh) == ((), True)


async def test_rows_held_back_before_the_last_enable_go_by_due_time_in_the_retry_lane(
    db: Db,
) -> None:
    scene = await Scene(db).begin()
    old_c, old_a = await publish(scene, C, A)
    await scene.enable(NOW + 1)
    scene.make.now += 500
    tried = await scene.tried((await scene.deliver())[0], due_at=NOW + 600)
    (new_a,) = await publish(scene, A)

    reply = await due(scene, since=NOW + 1)

    assert ids(reply.fresh) == [new_a.id]
    assert ids(reply.retry) == [old_c.id, old_a.id, tried.id]
    assert reply.next_due is None


async def test_a_long_group_in_the_retry_lane_says_that_there_is_more(db: Db) -> None:
    scene = await Scene(db).begin()
    made = await publish(scene, *([A] * 30), B)
    await scene.enable(NOW + 1)
    reply = await due(scene, since=NOW + 1)
    assert ids(reply.retry) == [it.id for it in made[:10]]
    assert reply.next_due == NOW
    assert not reply.more_fresh


async def test_an_endpoint_with_nothing_but_groups_is_found_at_a_start(db: Db) -> None:
    scene = await Scene(db).begin()
    (only,) = await publish(scene, B)
    (start,) = await scene.flow.start_page(0, 10)
    assert start.first
    assert start.oldest_id == only.id


async def test_a_probe_takes_the_oldest_of_all_groups(db: Db) -> None:
    scene = await Scene(db).begin()
    late, early, _ = await publish(scene, C, A, A)
    endpoint = replace(scene.endpoint, health=replace(scene.endpoint.health, state=State.DISABLED))

    async def probe() -> int:
        taken = await scene.flow.take_probe(endpoint, next_probe_at=NOW, now=NOW, skip_expired=True)
        assert taken is not None
        return taken.delivery.id

    assert await probe() == late.id
    await scene.rewrite(replace(late, expires_at=NOW))
    assert await probe() == early.id


async def test_a_group_ends_with_the_first_attempt(db: Db) -> None:
    scene = await Scene(db).begin()
    (made,) = await publish(scene, B)
    await scene.tried(made, due_at=NOW + 10)
    reply = await due(scene)
    assert reply.fresh == ()
    assert reply.retry[0].delivery.fair_part == 0


async def test_a_group_of_ten_thousand_hides_no_other_group(db: Db) -> None:
    scene = await Scene(db).begin()
    await publish(scene, *([A] * 5_000))
    many = await publish(scene, *range(PART_FAIR + 1, PART_FAIR + 201))
    seen: set[int] = set()
    after = 0
    for _ in range(11):
        reply = await due(scene, after=after, fresh=20)
        seen.update(ids(reply.fresh))
        after = reply.fresh[-1].delivery.fair_part
    assert seen >= {it.id for it in many}
