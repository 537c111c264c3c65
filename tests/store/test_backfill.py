"""Backfills in the store: the events that a subscription has none of, and steps taken once."""

from __future__ import annotations

from functools import partial

import pytest
from msgspec.structs import replace

from homing.errors import Conflict
from homing.model import Delivery, Finished, Order, Status
from homing.ports import ReplayFilter, ReplayJob, SettleBatch
from homing.ports.admin import FIRST_PLACE, LAST_PLACE, EventPlace
from homing.store.admin import Admin
from homing.store.tx import Db
from store.build import NOW, put
from store.scene import Scene
from store.test_order import keyed, publish, sent


def place(it: Delivery) -> EventPlace:
    """The place of its event in the order of acceptance."""
    return it.position, it.event_id


class Past(Scene):
    """A subscription that is created after some events were published."""

    async def begin(self, order: Order = Order.NONE) -> Past:
        await super().begin()
        self.admin = Admin(self.db)
        self.late = replace(self.make.subscription(self.endpoint), order=order)
        await put(self.db, subscriptions=[self.late])
        return self

    def job(self, **more: int) -> ReplayJob:
        conditions = ReplayFilter(
            tenant=self.late.tenant,
            subscription_id=self.late.id,
            since=0,
            backfill=True,
            per_second=10,
        )
        number = self.make.id()
        job = ReplayJob(number, conditions, self.make.now, "running", upto_id=number, after_id=0)
        return replace(job, **more)

    def delivery(self, event_id: int) -> Delivery:
        number = self.make.id()
        return Delivery(
            id=number,
            bucket=self.endpoint.bucket,
            tenant=self.late.tenant,
            endpoint_id=self.endpoint.id,
            subscription_id=self.late.id,
            event_id=event_id,
            root_id=number,
            accepted_at=self.make.now,
            due_at=self.make.now,
            expires_at=self.make.now + 1_000,
            replay=True,
        )


async def test_events_that_the_subscription_has_a_delivery_of_are_left_out(db: Db) -> None:
    scene = await Past(db).begin()
    none = await scene.deliver(2)
    both = [scene.make.event(scene.sub, scene.late) for _ in range(2)]
    await scene.publish(both)
    mine = both[1].deliveries[1]
    done = Finished(mine, Status.DELIVERED, None, NOW)
    await scene.flow.settle(SettleBatch(number=scene.number(), finished=(done,)))

    found, scanned, _, all_seen = await scene.admin.past_events(scene.job(), limit=10)

    assert [it.id for it in found] == [it.event_id for it in none]
    assert (scanned, all_seen) == (4, True)


async def test_a_page_ends_where_the_next_one_begins(db: Db) -> None:
    scene = await Past(db).begin()
    rows = await scene.deliver(5)
    job, seen = scene.job(), list[int]()
    for _ in range(5):
        found, _, upto, all_seen = await scene.admin.past_events(job, limit=2)
        seen += [it.id for it in found]
        if all_seen:
            break
        job = replace(job, after_position=upto[0], after_id=upto[1])
    assert seen == [it.event_id for it in rows]


async def test_a_step_is_written_once_and_never_doubles_a_delivery(db: Db) -> None:
    scene = await Past(db).begin()
    first, second = await scene.deliver(2)
    job = await scene.admin.save_backfill(scene.job())
    after = replace(job, after_id=second.event_id, replayed=2, state="done")
    new = [scene.delivery(first.event_id), scene.delivery(second.event_id)]
    running = replace(after, after_id=first.event_id, replayed=1, state="running")
    assert await scene.admin.replay_step(job, after=running, new=new[:1], seen={})
    assert not await scene.admin.replay_step(job, after=running, new=new[:1], seen={})
    again = [scene.delivery(first.event_id), new[1]]
    assert await scene.admin.replay_step(running, after=after, new=again, seen={})
    found, *_ = await scene.admin.past_events(scene.job(), limit=10)
    assert found == []
    stored = await scene.admin.replay_job(job.id)
    assert stored is not None
    assert (stored.state, stored.replayed, stored.skipped) == ("done", 1, 1)


async def test_one_backfill_of_a_subscription_runs_at_a_time(db: Db) -> None:
    scene = await Past(db).begin()
    job = await scene.admin.save_backfill(scene.job())
    with pytest.raises(Conflict, match="already delivers past events"):
        await scene.admin.save_backfill(scene.job())
    await scene.admin.cancel_replay_job(job.id)
    await scene.admin.save_backfill(scene.job())


async def test_events_go_in_the_order_of_their_commits_whatever_the_clocks_say(db: Db) -> None:
    scene = await Past(db).begin()
    rows = []
    for ahead in (1_000, 0, 3_000_000, 20):
        scene.make.now = NOW + ahead
        rows += await scene.deliver(2)
    saved = await scene.admin.save_backfill(scene.job())
    job = await scene.admin.bound_backfill(saved.id)
    assert job is not None
    assert await scene.admin.bound_backfill(saved.id) == job
    later = await scene.deliver(1)
    seen = list[int]()
    for _ in range(len(rows)):
        found, _, upto, all_seen = await scene.admin.past_events(job, limit=3)
        seen += [it.id for it in found]
        if all_seen:
            break
        job = replace(job, after_position=upto[0], after_id=upto[1])
    assert seen == [it.event_id for it in rows]
    (event,) = await scene.admin.events_whole([later[0].event_id, 5])
    assert event.id == later[0].event_id


@pytest.mark.parametrize("events", [1, 2, 7, 40])
async def test_a_backfill_from_a_time_begins_near_it(db: Db, events: int) -> None:
    """Two hours lie between two events, and the clock of every third one is 50 minutes off."""
    scene = await Past(db).begin()
    apart, hour = [0, 50 * 60_000, -50 * 60_000], 3_600_000
    rows = []
    for number in range(events):
        scene.make.now = NOW + 2 * hour * number + apart[number % 3]
        rows += await scene.deliver(1)
    for number in range(events):
        since = rows[number].accepted_at
        job = scene.job()
        job = replace(job, filter=replace(job.filter, since=since))
        found, scanned, _, _ = await scene.admin.past_events(job, limit=100)
        assert [it.id for it in found] == [it.event_id for it in rows if it.accepted_at >= since]
        assert scanned - len(found) <= 2


@pytest.mark.parametrize("newer_is", ["pending", "delivered"])
@pytest.mark.parametrize("order", [Order.KEY, Order.LATEST])
async def test_a_newer_event_that_came_meanwhile_keeps_an_older_one_of_its_key_away(
    db: Db, order: Order, newer_is: str
) -> None:
    scene = await Past(db).begin(order)
    (old,) = await publish(scene, keyed(scene))
    (other,) = await publish(scene, keyed(scene, "y"))
    (newer,) = await publish(scene, keyed(scene, sub=scene.late))
    if newer_is == "delivered":
        await scene.flow.settle(sent(scene, newer))
    job = await scene.admin.save_backfill(scene.job())
    new = [scene.delivery(it.event_id) for it in (old, other)]
    after = replace(job, after_id=newer.event_id, replayed=2, state="done")

    seen = {"x": place(old), "y": place(other)}
    assert await scene.admin.replay_step(job, after=after, new=new, seen=seen)

    stored = await scene.admin.replay_job(job.id)
    assert stored is not None
    left_out = int(order is Order.LATEST)
    assert (stored.replayed, stored.skipped) == (2 - left_out, left_out)


async def test_a_step_is_not_written_while_more_newer_events_came_than_it_looks_at(
    db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They match nothing; a newer one that the subscription has may lie before or behind them."""
    monkeypatch.setattr("homing.store.replays.NEWER_MAX", 3)
    scene = await Past(db).begin(Order.LATEST)
    (old,) = await publish(scene, keyed(scene))
    newer = await publish(scene, *(keyed(scene) for _ in range(3)))
    job = await scene.admin.save_backfill(scene.job())
    after = replace(job, after_id=newer[-1].event_id, replayed=1, state="done")
    new = [scene.delivery(old.event_id)]
    step = partial(scene.admin.replay_step, job, after=after, new=new)

    assert not await step(seen={"x": place(old)})
    assert await scene.admin.running_replay_jobs() == [job]
    assert await step(seen={"x": place(newer[0])})
    stored = await scene.admin.replay_job(job.id)
    assert stored is not None
    assert (stored.replayed, stored.skipped) == (1, 0)


async def test_a_newer_event_that_a_backfill_delivered_keeps_an_older_one_of_its_key_away(
    db: Db,
) -> None:
    scene = await Past(db).begin(Order.LATEST)
    old, newer = await publish(scene, keyed(scene), keyed(scene))
    job = await scene.admin.save_backfill(scene.job())
    step = partial(scene.admin.replay_step, seen={"x": place(old)})
    running = replace(job, after_id=1, replayed=1)
    assert await step(job, after=running, new=[scene.delivery(newer.event_id)])
    after = replace(running, after_id=newer.event_id, replayed=2, state="done")
    assert await step(running, after=after, new=[scene.delivery(old.event_id)])
    stored = await scene.admin.replay_job(job.id)
    assert stored is not None
    assert (stored.replayed, stored.skipped) == (1, 1)


async def test_the_newer_events_of_a_key_are_read_page_by_page(db: Db) -> None:
    scene = await Past(db).begin()
    subs = [scene.sub, scene.sub, scene.late]
    events = await publish(scene, *(keyed(scene, "xy"[n % 2], sub=subs[n // 2]) for n in range(6)))
    oldest, second, third = (place(it) for it in events if it.order_key == "x")
    read = partial(
        scene.admin.newer_of_key, scene.sub.tenant, "x", subscription_id=scene.late.id, limit=2
    )
    first = await read(after=FIRST_PLACE, before=LAST_PLACE)
    assert [(it.place, it.had) for it in first] == [(third, True), (second, False)]
    assert [it.place for it in await read(after=FIRST_PLACE, before=second)] == [oldest]
    assert [it.place for it in await read(after=oldest, before=third)] == [second]
    assert {it.order_key for it in first} == {"x"}
    other = partial(scene.admin.newer_of_key, "other", "x", subscription_id=1, limit=9)
    assert await other(after=FIRST_PLACE, before=LAST_PLACE) == []


async def test_a_subscription_and_its_backfill_are_stored_together_or_not_at_all(db: Db) -> None:
    scene = await Past(db).begin()
    scene.make.now += 1_000_000  # an event by a clock that was ahead
    (row,) = await scene.deliver(1)
    new = replace(scene.late, id=scene.make.id())
    conditions = replace(scene.job().filter, subscription_id=new.id)
    job = replace(scene.job(), filter=conditions)

    made = await scene.admin.create_subscription(new, endpoint=scene.endpoint, backfill=job)

    stored = await scene.admin.bound_backfill(job.id)
    assert stored is not None
    assert (stored.state, stored.filter.subscription_id) == ("running", made.id)
    assert stored.upto_position == scene.position, "it takes all events that were stored before"
    found, *_ = await scene.admin.past_events(stored, limit=10)
    assert [it.id for it in found] == [row.event_id]

    again = replace(new, id=scene.make.id())
    with pytest.raises(Conflict):
        await scene.admin.create_subscription(again, endpoint=scene.endpoint, backfill=job)
    version = await scene.admin.catalog_version()
    assert made.version == version, "nothing of a creation that failed is left"
    assert [it.id for it in await scene.admin.subscriptions_since(version - 1)] == [made.id]
