"""Replays, one by one and in bulk, on virtual time.

Promised: what-homing-promises.md#replays-and-test-sends.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from engine.world import DAY, HOUR, MINUTE, SECOND, World, always, balanced, live
from homing.engine.options import EngineOptions
from homing.errors import NotFound, StillPending, SubscriptionGone, TooMany
from homing.model import Lane, Order, Status, Subscription
from homing.policy.backfill import PastStart
from homing.policy.quota import Quota
from homing.ports import ReplayFilter
from homing.sim.loop import START_MS, VirtualClock
from homing.store.replays import RUNNING_MAX

URL = "https://receiver.example/hook"
OTHER = "https://other.example/hook"


def test_a_replay_is_a_new_delivery_with_the_old_webhook_id_in_the_retry_lane() -> None:
    async def story(world: World) -> None:
        subscription = await world.subscribe(URL)
        await world.publish()
        (row,) = await world.deliveries()
        with pytest.raises(StillPending):
            await world.engine.replay(row.delivery.id)
        await world.written()
        row = await world.only_delivery()
        new = await world.engine.replay(row.delivery.id)
        await world.written()
        first, second = world.sender.hits
        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        assert first.delivery != second.delivery
        (attempt,) = await world.views.attempts(new.id)
        assert attempt.lane is Lane.RETRY
        await world.engine.unsubscribe(subscription.id)
        with pytest.raises(SubscriptionGone):
            await world.engine.replay(row.delivery.id)
        with pytest.raises(NotFound):
            await world.engine.replay(12345)
        await balanced(world)

    live(story)


def test_a_replay_to_a_frozen_endpoint_waits_and_goes_when_it_is_enabled() -> None:
    async def story(world: World) -> None:
        subscription = await world.subscribe(URL)
        await world.publish()
        await world.written()
        row = await world.only_delivery()
        await world.engine.freeze(subscription.endpoint_id, by="ada")
        await world.engine.replay(row.delivery.id)
        await world.wait(HOUR)
        assert len(world.hits(URL)) == 1
        await world.engine.enable(subscription.endpoint_id, by="ada")
        await world.settled()
        assert len(world.hits(URL)) == 2

    live(story)


def test_a_bulk_replay_takes_each_dropped_delivery_once_also_over_a_crash() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)
        await world.subscribe(URL)
        for _ in range(40):
            await world.publish()
        await world.wait(3 * DAY)
        conditions = ReplayFilter(status=Status.DROPPED)
        assert await world.engine.count_replay(conditions) == (40, True)
        world.sender.scripts[URL] = always(200)
        before = len(world.hits(URL))
        job = await world.engine.start_replay(conditions)
        await world.crash()
        await world.wait(MINUTE)
        done = await world.engine.replay_job(job.id)
        assert (done.state, done.replayed, done.skipped) == ("done", 40, 0)
        assert len(world.hits(URL)) - before == 40
        await balanced(world)

    live(story)


async def restart(world: World, *, ahead_ms: int) -> None:
    """Start a new process whose clock is ahead of the true time by so much."""
    clock = VirtualClock(asyncio.get_running_loop(), start_ms=START_MS + ahead_ms)
    world.clock = world.sender._clock = clock
    await world.crash()


@pytest.mark.parametrize("given", [True, False])
def test_a_bulk_replay_takes_what_finished_under_a_clock_that_was_ahead(given: bool) -> None:
    """Its time is still to come; the list shows it all the same."""

    async def story(world: World) -> None:
        await world.subscribe(URL)
        await restart(world, ahead_ms=DAY)
        await world.publish()
        await world.written()
        await restart(world, ahead_ms=0)
        as_of = world.clock.now() if given else None
        await world.wait(MINUTE)
        conditions = ReplayFilter(status=Status.DELIVERED, as_of=as_of)
        assert await world.engine.count_replay(conditions) == (1, True)
        job = await world.engine.start_replay(conditions)
        await world.settled()
        done = await world.engine.replay_job(job.id)
        assert (done.state, done.replayed) == ("done", 1)
        assert len(world.hits(URL)) == 2

    live(story)


# --- quotas ---------------------------------------------------------------------------------

QUOTA = EngineOptions(tenant_quotas={"acme": Quota(pending_max=200)})


async def finished(world: World, count: int, tenant: str) -> Subscription:
    """Make so many finished deliveries of a tenant."""
    made = await world.subscribe(f"https://{tenant}.example/", tenant=tenant)
    for _ in range(count):
        await world.publish(tenant=tenant)
    await world.wait(SECOND)
    return made


async def most_pending(world: World, tenant: str, *, during_ms: int) -> int:
    most = 0
    for _ in range(during_ms // 100):
        await world.wait(100)
        most = max(most, await world.views.pending_of(tenant))
    return most


def test_jobs_of_a_tenant_keep_to_its_quota_of_pending_deliveries_and_go_on_later() -> None:
    """Several at once, which also wait for each other."""

    async def story(world: World) -> None:
        subscription = await finished(world, 700, "acme")
        step = world.admin.replay_step

        async def slow_step(*args: Any, **more: Any) -> bool:
            await asyncio.sleep(0.05)  # as a database with a network does
            return await step(*args, **more)

        world.admin.replay_step = slow_step  # type: ignore[method-assign]
        await world.engine.freeze(subscription.endpoint_id, by="ada")
        jobs = [
            await world.engine.start_replay(ReplayFilter(tenant="acme", type="a.b")),
            await world.engine.start_replay(ReplayFilter(tenant="acme")),
            await world.engine.start_replay(ReplayFilter(status=Status.DELIVERED)),
        ]
        late = await world.subscribe("https://acme.example/", tenant="acme")
        past = ReplayFilter(tenant="acme", subscription_id=late.id, since=0, backfill=True)
        jobs.append(await world.engine.start_backfill(msgspec.structs.replace(past, per_second=99)))
        assert 100 <= await most_pending(world, "acme", during_ms=MINUTE) <= 200
        for job in jobs:
            found = await world.engine.replay_job(job.id)
            assert (found.state, await world.engine.replay_waits_for(found)) == ("running", "acme")
        await world.engine.enable(subscription.endpoint_id, by="ada")
        assert await most_pending(world, "acme", during_ms=5 * MINUTE) <= 200
        ended = [await world.engine.replay_job(job.id) for job in jobs]
        assert [it.state for it in ended] == ["done"] * 4
        assert ended[1].replayed == ended[2].replayed == ended[3].replayed == 700
        assert await world.engine.replay_waits_for(ended[1]) is None
        await balanced(world)

    live(story, QUOTA)


def test_a_job_that_waits_for_a_quota_can_be_cancelled_and_holds_up_no_other_tenant() -> None:
    async def story(world: World) -> None:
        both = [await finished(world, 300, "acme"), await finished(world, 300, "other")]
        for it in both:
            await world.engine.freeze(it.endpoint_id, by="ada")
        job = await world.engine.start_replay(ReplayFilter(tenant="acme"))
        other = await world.engine.start_replay(ReplayFilter(tenant="other"))
        await world.wait(10 * SECOND)
        assert (await world.engine.replay_job(other.id)).replayed == 300
        assert await world.engine.replay_waits_for(await world.engine.replay_job(job.id)) == "acme"
        before = (await world.engine.cancel_replay(job.id)).replayed
        for it in both:
            await world.engine.enable(it.endpoint_id, by="ada")
        await world.wait(MINUTE)
        found = await world.engine.replay_job(job.id)
        assert (found.state, found.replayed) == ("cancelled", before)
        assert before <= 200
        await balanced(world)

    live(story, QUOTA)


def test_a_tenant_has_a_bounded_number_of_running_jobs() -> None:
    async def story(world: World) -> None:
        mine = await finished(world, 1, "acme")
        await finished(world, 1, "other")
        await world.engine.freeze(mine.endpoint_id, by="ada")
        await world.publish(tenant="acme")  # The quota is used up, so every job waits.
        for number in range(RUNNING_MAX):
            await world.engine.start_replay(ReplayFilter(tenant="acme", since=number))
        with pytest.raises(TooMany, match="acme"):
            await world.engine.start_replay(ReplayFilter(tenant="acme"))
        past = ReplayFilter(tenant="acme", subscription_id=mine.id, since=0, backfill=True)
        with pytest.raises(TooMany, match="acme"):
            await world.engine.start_backfill(past)
        draft = world.draft("https://new.example/", tenant="acme")
        with pytest.raises(TooMany, match="acme"):
            await world.engine.subscribe_from(draft, PastStart(0))
        assert await world.views.subscriptions_of("acme", limit=9) == 1
        await world.engine.start_replay(ReplayFilter(tenant="other"))
        await world.engine.enable(mine.endpoint_id, by="ada")
        await world.wait(MINUTE)
        await world.engine.start_replay(ReplayFilter(tenant="acme", type="a.b"))

    live(story, EngineOptions(tenant_quotas={"acme": Quota(pending_max=1)}))


def test_superseded_deliveries_do_not_count_for_the_quota() -> None:
    async def story(world: World) -> None:
        made = await world.subscribe(URL, order=Order.LATEST)
        await world.engine.freeze(made.endpoint_id, by="ada")
        for _ in range(5):
            await world.publish(order_key="k")
        await world.engine.enable(made.endpoint_id, by="ada")
        await world.wait(MINUTE)
        assert {it.status for it in await world.deliveries()} == {
            Status.DELIVERED,
            Status.SUPERSEDED,
        }
        assert await world.views.pending_of("default") == 0

    live(story)
