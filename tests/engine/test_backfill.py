"""Backfills: a subscription gets past events, once each, in order, in the retry lane.

Promised: what-homing-promises.md#past-events.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.fleet_world import FleetWorld, fleet, two
from engine.test_order import number, publish
from engine.world import DAY, HOUR, MINUTE, SECOND, World, always, balanced, changed, live
from homing.engine.options import EngineOptions
from homing.errors import Conflict, Unavailable
from homing.model import Order, Status, Subscription
from homing.policy.admission import EventDraft
from homing.policy.backfill import PastStart
from homing.ports import ReplayFilter, ReplayJob
from homing.store.admin import Admin

A, B = "https://a.example/hook", "https://b.example/hook"


def past(sub: Subscription, *, since: int = 0, per_second: int = 1_000) -> ReplayFilter:
    return ReplayFilter(
        tenant=sub.tenant,
        subscription_id=sub.id,
        since=since,
        backfill=True,
        per_second=per_second,
    )


async def done(world: World, job: ReplayJob) -> ReplayJob:
    for _ in range(1_000):
        found = await world.engine.replay_job(job.id)
        if found.state != "running":
            return found
        await world.wait(100)
    raise AssertionError("the job never ends")


async def got(world: World, sub: Subscription) -> list[str]:
    """The events that a subscription has deliveries of, in the order of the deliveries."""
    rows = await world.deliveries(subscription_id=sub.id)
    return [row.event_key for row in rows]


def test_a_new_subscription_gets_the_past_events_once_each_and_in_order() -> None:
    async def story(world: World) -> None:
        keys = [(await world.publish("order.paid")).key for _ in range(5)]
        await world.publish("user.made")
        sub = await world.subscribe(A, "order.*")
        assert await world.engine.count_past(past(sub)) == (5, True)
        job = await done(world, await world.engine.start_backfill(past(sub)))
        assert (job.state, job.replayed, job.skipped) == ("done", 5, 0)
        await world.wait(SECOND)
        assert await got(world, sub) == keys
        rows = await world.deliveries(subscription_id=sub.id)
        assert {row.status for row in rows} == {Status.DELIVERED}
        assert all(row.delivery.replay for row in rows)
        assert all(row.delivery.root_id == row.delivery.id for row in rows)
        assert await world.engine.count_past(past(sub)) == (0, True)
        again = await done(world, await world.engine.start_backfill(past(sub)))
        assert again.replayed == 0
        await balanced(world)

    live(story)


def test_what_the_subscription_has_already_is_never_doubled() -> None:
    async def story(world: World) -> None:
        first = await world.publish()
        sub = await world.subscribe(A)
        world.sender.scripts[A] = always(500)
        pending = await world.publish()
        await world.wait(SECOND)
        (row,) = await world.deliveries(status=Status.PENDING)
        cancelled = await world.publish()
        await world.wait(SECOND)
        rows = await world.deliveries(status=Status.PENDING)
        gone = next(it for it in rows if it.event_key == cancelled.key)
        await world.engine.cancel(gone.delivery.id)
        replayed = await world.engine.replay(gone.delivery.id)
        world.sender.scripts[A] = always(200)
        await done(world, await world.engine.start_backfill(past(sub)))
        await world.wait(SECOND)
        assert sorted(await got(world, sub)) == sorted(
            [pending.key, cancelled.key, cancelled.key, first.key]
        )
        assert replayed.id in {it.delivery.id for it in await world.deliveries()}
        assert row.event_key == pending.key

    live(story)


def test_filters_and_the_time_choose_the_events() -> None:
    async def story(world: World) -> None:
        await world.publish(data={"amount": 500})
        await world.wait(HOUR)
        since = world.clock.now()
        small = await world.publish(data={"amount": 5})
        large = await world.publish(data={"amount": 700})
        text = '[{"field": "data.amount", "op": "gt", "value": 100}]'
        sub = await world.subscribe(A, filters=text)
        assert await world.engine.count_past(past(sub, since=since)) == (1, True)
        await done(world, await world.engine.start_backfill(past(sub, since=since)))
        assert await got(world, sub) == [large.key]
        await world.engine.change(sub.id, changed(filters="[]"))
        await done(world, await world.engine.start_backfill(past(sub, since=since)))
        assert await got(world, sub) == [large.key, small.key]

    live(story)


def test_events_that_are_published_meanwhile_come_once() -> None:
    async def story(world: World) -> None:
        keys = [(await world.publish()).key for _ in range(20)]
        sub = await world.subscribe(A)
        job = await world.engine.start_backfill(past(sub, per_second=5))
        for _ in range(10):
            keys.append((await world.publish()).key)
            await world.wait(300)
        await done(world, job)
        await world.wait(SECOND)
        assert sorted(await got(world, sub)) == sorted(keys)

    live(story)


def test_a_job_keeps_its_rate_and_fresh_events_do_not_wait_for_it() -> None:
    async def story(world: World) -> None:
        for _ in range(40):
            await world.publish()
        sub = await world.subscribe(A)
        await world.wait(MINUTE)
        began = world.since_start()
        job = await world.engine.start_backfill(past(sub, per_second=10))
        await world.wait(SECOND + 50)
        fresh = await world.publish()
        await world.wait(50)
        hits = [hit for hit in world.sender.hits if fresh.key.encode() in hit.body]
        assert len(hits) == 1
        await done(world, job)
        await world.written()
        assert len(world.hits(A)) == 41
        assert 3 * SECOND <= world.hits(A)[-1] - began <= 5 * SECOND

    live(story)


def test_a_crash_in_the_middle_loses_nothing_and_doubles_nothing() -> None:
    async def story(world: World) -> None:
        keys = [(await world.publish()).key for _ in range(30)]
        sub = await world.subscribe(A)
        job = await world.engine.start_backfill(past(sub, per_second=5))
        await world.wait(2_500)
        await world.crash()
        assert (await world.engine.replay_job(job.id)).state == "running"
        after = await done(world, job)
        assert after.replayed == 30
        await world.wait(SECOND)
        assert await got(world, sub) == keys

    live(story)


def test_a_second_job_of_the_subscription_is_refused_and_a_cancelled_one_makes_room() -> None:
    async def story(world: World) -> None:
        for _ in range(30):
            await world.publish()
        sub, other = await world.subscribe(A), await world.subscribe(B)
        job = await world.engine.start_backfill(past(sub, per_second=1))
        with pytest.raises(Conflict, match="already delivers past events"):
            await world.engine.start_backfill(past(sub))
        await done(world, await world.engine.start_backfill(past(other)))
        assert (await world.engine.cancel_replay(job.id)).state == "cancelled"
        made = len(await got(world, sub))
        await world.wait(10 * SECOND)
        assert len(await got(world, sub)) <= made + 1
        await done(world, await world.engine.start_backfill(past(sub)))
        assert len(set(await got(world, sub))) == len(await got(world, sub)) == 30

    live(story)


def test_a_paused_subscription_gets_its_past_events_after_the_pause() -> None:
    async def story(world: World) -> None:
        await world.publish()
        sub = await world.subscribe(A)
        await world.engine.pause(sub.id)
        await done(world, await world.engine.start_backfill(past(sub)))
        await world.wait(3 * DAY)
        assert world.hits() == []
        await world.engine.resume(sub.id)
        await world.wait(SECOND)
        assert world.hits() == [world.hits()[0]]

    live(story)


def test_a_notice_about_an_endpoint_is_not_delivered_to_it_later_either() -> None:
    async def story(world: World) -> None:
        await world.subscribe(A, "order.*")
        await world.engine.freeze((await world.endpoint(A)).id, by="op")
        await world.engine.enable((await world.endpoint(A)).id, by="op")
        same, other = await world.subscribe(A, "homing.*"), await world.subscribe(B, "homing.*")
        for sub in (same, other):
            await done(world, await world.engine.start_backfill(past(sub)))
        assert await got(world, same) == []
        assert len(await got(world, other)) == 2

    live(story)


def test_a_job_ends_when_its_subscription_is_deleted_or_inactive() -> None:
    async def story(world: World) -> None:
        for _ in range(10):
            await world.publish()
        sub = await world.subscribe(A)
        job = await world.engine.start_backfill(past(sub, per_second=1))
        await world.wait(2_500)
        await world.engine.change(sub.id, changed(active=False))
        assert (await done(world, job)).state == "cancelled"

    live(story, EngineOptions(step_rows=2))


def test_with_the_order_key_past_events_come_one_after_the_other() -> None:
    async def story(world: World) -> None:
        for n in range(6):
            await publish(world, "xy"[n % 2], n)
        world.sender.scripts[A] = always(200, latency_ms=SECOND)
        sub = await world.subscribe(A, order=Order.KEY)
        await done(world, await world.engine.start_backfill(past(sub)))
        await publish(world, "x", 6)
        await world.wait(MINUTE)
        sent = [number(hit) for hit in world.sender.hits]
        assert [n for n in sent if n % 2 == 0] == [0, 2, 4, 6]
        assert [n for n in sent if n % 2] == [1, 3, 5]
        assert world.sender.most_flying[A] == 2
        await balanced(world)

    live(story)


@pytest.mark.parametrize("step_rows", [1, 2, 100])
def test_with_the_order_latest_only_the_newest_past_event_of_a_key_comes(step_rows: int) -> None:
    async def story(world: World) -> None:
        for n in range(9):
            await publish(world, "xyz"[n % 3], n)
        await publish(world, None, 9, 10)
        await world.publish("user.made")  # no type of the subscription
        sub = await world.subscribe(A, "a.*", order=Order.LATEST)
        assert await world.engine.count_past(past(sub)) == (5, True)
        job = await done(world, await world.engine.start_backfill(past(sub)))
        assert (job.state, job.replayed) == ("done", 5)
        await world.wait(MINUTE)
        assert sorted(number(hit) for hit in world.sender.hits) == [6, 7, 8, 9, 10]
        await balanced(world)

    live(story, EngineOptions(step_rows=step_rows))


def test_a_newer_event_that_does_not_match_keeps_none_away_and_one_that_came_does() -> None:
    async def story(world: World) -> None:
        await publish(world, "x", 0)
        await publish(world, "y", 1)
        other = EventDraft("default", "b.b", b"{}", order_key="x")
        for _ in range(250):  # more than one page of them
            await world.engine.publish([other])
        sub = await world.subscribe(A, "a.*", order=Order.LATEST)
        await publish(world, "y", 2)
        await world.wait(SECOND)
        await done(world, await world.engine.start_backfill(past(sub)))
        await world.wait(MINUTE)
        assert [number(hit) for hit in world.sender.hits] == [2, 0]
        await balanced(world)

    live(story)


@pytest.mark.parametrize("came", ["live", "by a backfill"])
@pytest.mark.parametrize("others", [0, 250])
def test_with_latest_no_older_event_comes_after_a_newer_one_that_does_not_match_now(
    others: int, came: str
) -> None:
    """However many events of the key lie after it that the subscription never wanted."""

    async def story(world: World) -> None:
        draft = EventDraft("default", "old.a", b'{"n": 0}', order_key="x")
        await world.engine.publish([draft])
        if came == "live":
            sub = await world.subscribe(A, "a.*", order=Order.LATEST)
        await publish(world, "x", 1)
        if came != "live":
            sub = await world.subscribe(A, "a.*", order=Order.LATEST)
            await done(world, await world.engine.start_backfill(past(sub)))
        await world.wait(SECOND)
        other = EventDraft("default", "b.b", b"{}", order_key="x")
        for _ in range(others):
            await world.engine.publish([other])
        sub = await world.engine.change(sub.id, changed(types=("old.*",)))
        assert await world.engine.count_past(past(sub)) == (0, True)
        job = await done(world, await world.engine.start_backfill(past(sub)))
        assert (job.state, job.replayed, job.skipped) == ("done", 0, 0)
        await world.wait(MINUTE)
        assert [number(hit) for hit in world.sender.hits] == [1]
        await balanced(world)

    live(story)


@pytest.mark.parametrize("look_max", [1, 7, 1_000])
def test_a_step_that_cannot_find_the_newest_of_a_key_goes_on_in_the_next(
    monkeypatch: pytest.MonkeyPatch, look_max: int
) -> None:
    async def story(world: World) -> None:
        other = EventDraft("default", "b.b", b"{}", order_key="x")
        await publish(world, "x", 0)
        await publish(world, "y", 1)
        await publish(world, "x", 2)
        for _ in range(30):
            await world.engine.publish([other])
        await publish(world, "z", 3)
        sub = await world.subscribe(A, "a.*", order=Order.LATEST)
        monkeypatch.setattr("homing.engine.replay.LOOK_MAX", look_max)
        job = await done(world, await world.engine.start_backfill(past(sub)))
        assert (job.state, job.replayed, job.skipped) == ("done", 3, 0)
        await world.wait(MINUTE)
        assert sorted(number(hit) for hit in world.sender.hits) == [1, 2, 3]
        await balanced(world)

    live(story)


def test_a_dry_run_counts_the_events_of_a_key_that_it_looks_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World) -> None:
        await publish(world, "x", 0)
        other = EventDraft("default", "b.b", b"{}", order_key="x")
        for _ in range(30):
            await world.engine.publish([other])
        sub = await world.subscribe(A, "a.*", order=Order.LATEST)
        assert await world.engine.count_past(past(sub)) == (1, True)
        monkeypatch.setattr("homing.engine.replay.COUNT_MAX", 40)
        assert await world.engine.count_past(past(sub)) == (0, False)

    live(story)


def test_a_job_whose_begin_was_not_answered_runs_although_it_is_not_found_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World) -> None:
        await world.publish()
        sub = await world.subscribe(A)
        save, search, left = Admin.save_backfill, Admin.running_replay_jobs, [0] * 3

        async def saved_and_lost(self: Admin, job: ReplayJob, **more: Any) -> ReplayJob:
            await save(self, job, **more)
            raise Unavailable("the reply was lost")

        async def not_found(self: Admin) -> list[ReplayJob]:
            if left:
                left.pop()
                raise Unavailable("the reply was lost")
            return await search(self)

        monkeypatch.setattr(Admin, "save_backfill", saved_and_lost)
        monkeypatch.setattr(Admin, "running_replay_jobs", not_found)
        with pytest.raises(Unavailable):
            await world.engine.start_backfill(past(sub))
        await world.wait(MINUTE)
        assert len(await got(world, sub)) == 1

    live(story)


# --- a new subscription that starts in the past ----------------------------------------------


def test_a_subscription_is_created_with_a_job_that_delivers_past_events() -> None:
    async def story(world: World) -> None:
        keys = [(await world.publish("order.paid")).key for _ in range(5)]
        await world.publish("user.made")
        draft, start = world.draft(A, "order.*"), PastStart(0, 1_000)
        assert await world.engine.count_past_of(draft, start) == (5, True)
        sub, job = await world.engine.subscribe_from(draft, start)
        keys.append((await world.publish("order.paid")).key)  # It is delivered at once.
        ended = await done(world, job)
        assert (ended.state, ended.replayed, ended.skipped) == ("done", 5, 0)
        await world.wait(SECOND)
        assert sorted(await got(world, sub)) == sorted(keys), "each of them once"
        await balanced(world)

    live(story)


def test_with_latest_a_new_subscription_gets_the_newest_past_event_of_each_key() -> None:
    async def story(world: World) -> None:
        for key, n in (("x", 0), ("y", 1), ("x", 2)):
            await publish(world, key, n)
        draft = world.draft(A, order=Order.LATEST)
        assert await world.engine.count_past_of(draft, PastStart(0)) == (2, True)
        _, job = await world.engine.subscribe_from(draft, PastStart(0))
        await done(world, job)
        await world.wait(MINUTE)
        assert [number(hit) for hit in world.sender.hits] == [1, 2]
        await balanced(world)

    live(story)


@pytest.mark.parametrize("stored", [True, False])
def test_after_a_creation_without_a_reply_there_are_both_or_neither(
    monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    async def story(world: World) -> None:
        await world.publish()
        create = Admin.create_subscription

        async def lost(self: Admin, *args: Any, **more: Any) -> Subscription:
            if stored:
                await create(self, *args, **more)
            raise Unavailable("the reply was lost")

        monkeypatch.setattr(Admin, "create_subscription", lost)
        with pytest.raises(Unavailable):
            await world.engine.subscribe_from(world.draft(A), PastStart(0))
        await world.wait(MINUTE)
        assert len(world.sender.hits) == int(stored)
        assert await world.engine._replayer._admin.running_replay_jobs() == []

    live(story)


def test_a_job_goes_on_after_a_crash_right_after_the_creation() -> None:
    async def story(world: World) -> None:
        await world.publish()
        sub, job = await world.engine.subscribe_from(world.draft(A), PastStart(0))
        await world.crash()
        await world.start()
        assert (await done(world, job)).state == "done"
        assert len(await got(world, sub)) == 1

    live(story)


def test_a_job_that_is_stored_while_another_search_reads_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The search read the list before the job was in it."""

    async def story(world: World) -> None:
        await world.publish()
        running = Admin.running_replay_jobs

        async def slow(self: Admin) -> list[ReplayJob]:
            found = await running(self)
            await world.wait(SECOND)
            return found

        monkeypatch.setattr(Admin, "running_replay_jobs", slow)
        world.engine._replayer.take_up()
        await world.wait(1)
        sub, job = await world.engine.subscribe_from(world.draft(A), PastStart(0))
        assert (await done(world, job)).state == "done"
        assert len(await got(world, sub)) == 1

    live(story)


def test_the_process_that_runs_jobs_reads_a_subscription_that_it_has_not_heard_of() -> None:
    """It would otherwise take the subscription for a deleted one, and cancel the job."""

    async def story(world: FleetWorld) -> None:
        one, other = await two(world)
        leader = world.owner_of(0)
        away = other if leader is one else one
        await world.publish()
        world.air.cut = True
        creating = asyncio.create_task(away.engine.subscribe_from(world.draft(A), PastStart(0)))
        await world.wait(1)
        assert not leader.engine._core.catalog.of_tenant("default"), "it is waited for"
        await leader.engine._replayer.go_on()
        sub, job = await creating
        assert (await done(world, job)).state == "done"
        assert len(await got(world, sub)) == 1

    fleet(story)
