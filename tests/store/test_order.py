"""Order by key in the store: what a publish blocks, and what the end of a delivery unblocks.

Promised: what-homing-promises.md#order-by-key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest
from msgspec.structs import replace

from homing.model import (
    PART_BLOCKED,
    PART_FAIR,
    Delivery,
    Order,
    Reason,
    State,
    Status,
    Subscription,
    Work,
)
from homing.ports import KeyRelease, NewEvent, Receipt, SettleBatch
from homing.ports.flow import Retention
from homing.store import rows
from homing.store.admin import Admin
from homing.store.flow import Flow
from homing.store.tx import Db
from homing.store.views import Views
from store.build import HOUR, NOW, put
from store.scene import Scene, count, every

LATER = NOW + 7_000


def keyed(
    scene: Scene, key: str = "x", *, order: bool = True, sub: Subscription | None = None
) -> NewEvent:
    """An event with a key and one delivery."""
    new = scene.make.event(sub or scene.sub)
    delivery = replace(new.deliveries[0], order_key=key)
    event = replace(new.event, order_key=key)
    ordered = (delivery.id,) if order else ()
    return replace(new, event=event, deliveries=(delivery,), ordered=ordered)


async def publish(scene: Scene, *events: NewEvent) -> list[Delivery]:
    """Publish events in one request; the deliveries as they are stored."""
    await scene.publish(list(events))
    return [await stored(scene.db, new.deliveries[0].id) for new in events]


async def stored(db: Db, delivery_id: int) -> Delivery:
    (row,) = [row for row in await every(db, "pending") if row[0] == delivery_id]
    return rows.pending(row)


def sent(scene: Scene, delivery: Delivery, *, at: int = LATER) -> SettleBatch:
    """The batch that delivers this one."""
    finished = replace(scene.make.finished(delivery), finished_at=at)
    return SettleBatch(
        number=scene.number(), finished=(finished,), attempts=(scene.make.delivered(delivery),)
    )


async def due_ids(scene: Scene) -> list[int]:
    reply = await scene.due(now=NOW + HOUR)
    return [it.delivery.id for it in (*reply.fresh, *reply.retry)]


async def test_of_one_key_the_first_delivery_is_due_and_the_others_are_blocked(db: Db) -> None:
    scene = await Scene(db).begin()
    events = [keyed(scene, "x"), keyed(scene, "x"), keyed(scene, "y"), keyed(scene, "x")]

    (receipts,) = await scene.publish(events)

    first, second, other, third = (new.deliveries[0].id for new in events)
    assert isinstance(receipts, list)
    assert [it.blocked for it in receipts] == [(), (second,), (), (third,)]
    assert await due_ids(scene) == [first, other]
    assert (await stored(db, second)).part == PART_BLOCKED
    assert (await stored(db, second)).order_seq < (await stored(db, third)).order_seq


async def test_without_an_order_nothing_is_blocked_but_later_ones_wait_for_it(db: Db) -> None:
    scene = await Scene(db).begin()
    free = await publish(scene, *(keyed(scene, order=False) for _ in range(2)))
    (waiting,) = await publish(scene, keyed(scene))

    assert waiting.order_seq
    assert not (await scene.flow.settle(sent(scene, free[0]))).unblocked
    result = await scene.flow.settle(sent(scene, free[1]))
    assert [it.id for it in result.unblocked] == [waiting.id]


async def test_the_newest_waits_for_all_that_were_accepted_without_an_order(db: Db) -> None:
    scene = await Scene(db).begin()
    free = await publish(scene, *(keyed(scene, order=False) for _ in range(3)))
    (newest,) = await publish(scene, keyed(scene))

    assert not await scene.flow.newest(free, now=LATER)
    await scene.flow.settle(sent(scene, free[0]))
    await Admin(db).cancel_delivery(free[1].id, now=LATER)
    assert not await scene.flow.newest([free[2]], now=LATER)  # The other may be in flight.
    await scene.flow.settle(sent(scene, free[1]))

    found = await scene.flow.newest(free, now=LATER)

    work = found[free[2].id]
    assert isinstance(work, Work)
    assert (len(found), work.delivery.id) == (1, newest.id)


async def test_the_end_of_a_delivery_unblocks_the_next_one_of_its_key(db: Db) -> None:
    scene = await Scene(db).begin()
    first, second, third = await publish(scene, *(keyed(scene) for _ in range(3)))

    result = await scene.flow.settle(sent(scene, first))

    (unblocked,) = result.unblocked
    assert unblocked == await stored(db, second.id)
    assert (unblocked.order_seq, unblocked.ready_at, unblocked.due_at) == (0, LATER, LATER)
    assert unblocked.expires_at - LATER == second.expires_at - second.accepted_at
    assert await due_ids(scene) == [second.id]
    assert (await stored(db, third.id)).order_seq


async def test_the_next_one_goes_in_the_retry_lane_after_a_drop(db: Db) -> None:
    scene = await Scene(db).begin()
    first, second = await publish(scene, keyed(scene), keyed(scene))
    dropped = scene.make.finished(first, status=Status.DROPPED, reason=Reason.EXHAUSTED)

    await scene.flow.settle(SettleBatch(number=scene.number(), finished=(dropped,)))

    reply = await scene.due(now=NOW + HOUR)
    assert not reply.fresh
    assert [it.delivery.id for it in reply.retry] == [second.id]
    assert reply.retry[0].delivery.unblocked_at < 0


async def test_at_an_endpoint_that_is_not_enabled_the_window_stays_that_of_acceptance(
    db: Db,
) -> None:
    scene = Scene(db)
    scene.endpoint = scene.make.endpoint(state=State.FROZEN)
    scene.sub = scene.make.subscription(scene.endpoint)
    await scene.begin()
    first, second = await publish(scene, keyed(scene), keyed(scene))
    expired = scene.make.finished(first, status=Status.DROPPED, reason=Reason.EXPIRED)

    await scene.flow.settle(SettleBatch(number=scene.number(), finished=(expired,)))

    assert await stored(db, second.id) == replace(second, order_seq=0)


async def test_a_fair_group_is_kept_while_a_delivery_is_blocked(db: Db) -> None:
    scene = await Scene(db).begin()
    events = [keyed(scene), keyed(scene)]
    group = PART_FAIR + 9
    events = [
        replace(new, deliveries=(replace(new.deliveries[0], fair_part=group),)) for new in events
    ]
    first, second = await publish(scene, *events)
    assert (first.part, second.part, second.fair_part) == (group, PART_BLOCKED - group, group)

    await scene.flow.settle(sent(scene, first))

    assert (await stored(db, second.id)).part == group


async def test_places_follow_the_commits_whatever_the_ids_say(db: Db) -> None:
    scene = await Scene(db).begin()
    early, late = keyed(scene), keyed(scene)
    first = keyed(scene)
    await publish(scene, first)
    await publish(scene, late)
    await publish(scene, early)  # by a process whose clock is behind

    result = await scene.flow.settle(sent(scene, first.deliveries[0]))
    assert [it.id for it in result.unblocked] == [late.deliveries[0].id]
    result = await scene.flow.settle(sent(scene, late.deliveries[0]))
    assert [it.id for it in result.unblocked] == [early.deliveries[0].id]


async def test_a_cancelled_delivery_blocks_its_key_until_it_is_released(db: Db) -> None:
    scene = await Scene(db).begin()
    admin = Admin(db)
    first, second = await publish(scene, keyed(scene), keyed(scene))

    await admin.cancel_delivery(first.id, now=LATER)

    (third,) = await publish(scene, keyed(scene))
    assert third.order_seq > second.order_seq
    assert await due_ids(scene) == []
    (release,) = await admin.key_releases(limit=10)
    assert release == KeyRelease(first.id, first.bucket, first.endpoint_id, scene.sub.id, "x")
    assert [it.id for it in await admin.release_keys([release], now=LATER)] == [second.id]
    assert not await admin.key_releases(limit=10)
    assert await due_ids(scene) == [second.id]


async def test_the_settle_of_a_cancelled_delivery_releases_its_key(db: Db) -> None:
    scene = await Scene(db).begin()
    first, second = await publish(scene, keyed(scene), keyed(scene))
    await Admin(db).cancel_delivery(first.id, now=LATER)

    result = await scene.flow.settle(sent(scene, first))

    assert result.gone == {first.id}
    assert [it.id for it in result.unblocked] == [second.id]
    assert not await count(db, "key_release")


async def test_cancelling_a_blocked_delivery_changes_nothing_for_the_others(db: Db) -> None:
    scene = await Scene(db).begin()
    first, second, third = await publish(scene, *(keyed(scene) for _ in range(3)))

    await Admin(db).cancel_delivery(second.id, now=LATER)

    assert not await count(db, "key_release")
    result = await scene.flow.settle(sent(scene, first))
    assert [it.id for it in result.unblocked] == [third.id]


async def test_probes_pass_over_blocked_deliveries(db: Db) -> None:
    scene = Scene(db)
    scene.endpoint = scene.make.endpoint(state=State.DISABLED)
    scene.sub = scene.make.subscription(scene.endpoint)
    await scene.begin()
    heads: list[Delivery] = []
    for key in ("x", "y"):
        head, *_ = await publish(scene, *(keyed(scene, key) for _ in range(5)))
        heads.append(await scene.tried(head, due_at=LATER))
    taken: list[int] = []
    endpoint = scene.endpoint
    for _ in range(3):
        work = await scene.flow.take_probe(
            endpoint, next_probe_at=LATER, now=NOW, skip_expired=False
        )
        assert work is not None
        taken.append(work.delivery.id)
        endpoint = replace(endpoint, probe_after_id=work.delivery.id)

    assert taken == [heads[0].id, heads[1].id, heads[0].id]


async def test_blocked_deliveries_past_the_retention_are_dropped(db: Db) -> None:
    scene = await Scene(db).begin()
    first, second, third = await publish(scene, *(keyed(scene) for _ in range(3)))

    flow = Flow(db)
    late = NOW + HOUR
    expire = partial(flow.expire_blocked, now=LATER, after_id=0)
    assert await expire(Retention(NOW), limit=1) == (0, None)
    assert await expire(Retention(NOW, {"neighbour": late}), limit=1) == (0, second.id)
    assert await expire(Retention(late, {scene.sub.tenant: NOW}), limit=9) == (0, None)
    assert await expire(Retention(NOW, {scene.sub.tenant: late}), limit=1) == (1, second.id)
    assert await expire(Retention(late), limit=9) == (1, None)

    assert [row[0] for row in await every(db, "pending")] == [first.id]
    ended = [rows.history(row) for row in await every(db, "history")]
    assert [it.delivery.id for it in ended] == [second.id, third.id]
    assert {(it.status, it.reason) for it in ended} == {(Status.DROPPED, Reason.EXPIRED)}
    (ledger,) = await Views(db).ledger(tenant=None)
    assert (ledger.accepted, ledger.pending, ledger.dropped) == (3, 1, 2)


async def test_a_view_names_the_delivery_that_a_blocked_one_waits_for(db: Db) -> None:
    scene = await Scene(db).begin()
    first, second, third = await publish(scene, *(keyed(scene) for _ in range(3)))
    views = Views(db)
    assert await views.in_order(first.id) == (first, None)
    assert await views.in_order(second.id) == (second, first.id)
    assert await views.in_order(third.id) == (third, second.id)
    row = await views.delivery(third.id)
    assert row is not None
    assert row.order_key == "x"


async def test_keys_of_other_subscriptions_are_other_keys(db: Db) -> None:
    scene = await Scene(db).begin()
    other = scene.make.subscription(scene.endpoint)
    await put(db, subscriptions=[other])
    await publish(scene, keyed(scene))
    (delivery,) = await publish(scene, keyed(scene, sub=other))
    assert not delivery.order_seq


@pytest.mark.parametrize("begun", ["publish", "settle"])
async def test_a_publish_and_a_settle_at_the_same_time_leave_nothing_stuck(
    db: Db, begun: str
) -> None:
    """Each of them must see what the other has written, in either order."""
    scene = await Scene(db).begin()
    for _ in range(30):
        (head,) = await publish(scene, keyed(scene))
        new = keyed(scene)
        settle = scene.flow.settle(sent(scene, head))
        calls: Sequence[object] = (scene.publish([new]), settle)
        if begun == "settle":
            calls = calls[::-1]
        await asyncio.gather(*calls)  # type: ignore[call-overload]
        delivery = await stored(db, new.deliveries[0].id)
        assert not delivery.order_seq
        await scene.flow.settle(sent(scene, delivery))


async def test_a_replay_of_a_subscription_with_an_order_goes_behind(db: Db) -> None:
    scene = Scene(db)
    scene.sub = replace(scene.sub, order=Order.KEY)
    await scene.begin()
    old, second, third = (keyed(scene) for _ in range(3))
    await publish(scene, old)
    await scene.flow.settle(sent(scene, old.deliveries[0]))
    await publish(scene, second, third)
    new = replace(old.deliveries[0], id=scene.make.id(), replay=True, attempts=0, accepted_at=LATER)

    replay = await Admin(db).replay(old.deliveries[0].id, new=new)

    assert replay.order_key == "x"
    assert replay.order_seq > (await stored(db, third.deliveries[0].id)).order_seq


def test_receipts_say_nothing_of_blocks_where_there_is_none() -> None:
    assert Receipt("k", 1, new=True).blocked == ()
