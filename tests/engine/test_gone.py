"""A 410 under a policy that obeys it: the subscription is inactive and nothing of it is pending."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from engine.world import Hit, Reply, World, always, balanced, changed, live
from homing.engine.options import EngineOptions
from homing.errors import StoreUnavailable
from homing.model import Decided, Outcome, Reason, State, Status, Subscription
from homing.policy.presets import PRESETS, WORKFRONT
from homing.policy.receiver import set_gone
from homing.policy.retry import OnGone
from homing.ports import SettleResult
from homing.ports.audit import AuditFilter
from homing.sim.loop import START_MS, VirtualClock

URL, OTHER = "https://receiver.example/hook", "https://other.example/hook"
SECOND, HOUR, DAY = 1_000, 3_600_000, 86_400_000
OBEYS = msgspec.structs.replace(WORKFRONT, name="obeys", on_gone=OnGone.DEACTIVATE)


def options(**more: Any) -> EngineOptions:
    return EngineOptions(schedules={**PRESETS, "obeys": OBEYS}, policy="obeys", **more)


async def stored(world: World, subscription: Subscription) -> Subscription:
    found = await world.views.subscription(subscription.id)
    assert found is not None
    return found


async def own(world: World) -> list[Any]:
    return [row for row in await world.deliveries() if not row.event_type.startswith("homing.")]


@pytest.mark.parametrize("policy", sorted(PRESETS))
def test_every_built_in_policy_retries_a_410(policy: str) -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(410)
        subscription = await world.subscribe(URL, policy=policy)
        await world.publish()
        await world.wait(4 * DAY)
        row = await world.only_delivery()
        assert (row.status, row.reason) == (Status.DROPPED, Reason.EXHAUSTED)
        assert (await stored(world, subscription)).active

    live(story, options())


def test_a_410_sets_the_subscription_inactive_and_cancels_all_that_is_pending() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)
        subscription = await world.subscribe(URL)
        other = await world.subscribe(OTHER)
        for _ in range(40):
            await world.publish()
        await world.settled()
        world.sender.scripts[URL] = always(410)
        await world.wait(HOUR)
        found = await stored(world, subscription)
        assert not found.active
        assert found.receiver is not None
        assert found.receiver.gone_at is not None
        seen = len(world.hits(URL))
        rows = [row for row in await own(world) if row.delivery.subscription_id == subscription.id]
        assert {(row.status, row.reason) for row in rows} == {(Status.CANCELLED, Reason.GONE)}
        assert (await world.publish()).deliveries == 1
        await world.wait(3 * DAY)
        assert len(world.hits(URL)) == seen
        assert (await stored(world, other)).active
        assert len(world.hits(OTHER)) == 42  # With the notice.
        assert (await world.endpoint(URL)).health.state is State.ENABLED
        assert await world.admin.cleanup_jobs() == []
        await balanced(world)

    live(story, options(step_rows=3))


def test_the_attempt_is_logged_as_failed_and_its_delivery_as_cancelled() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(410)
        await world.subscribe(URL)
        await world.publish()
        await world.settled()
        row = await world.only_delivery()
        (attempt,) = await world.views.attempts(row.delivery.id)
        assert (attempt.outcome, attempt.decided) == (Outcome.FAILED, Decided.CANCELLED)
        assert (attempt.code, row.delivery.attempts) == (410, 1)
        endpoint = await world.endpoint(URL)
        assert (endpoint.health.attempts, endpoint.health.failures) == (1, 1)

    live(story, options())


def test_the_tenant_gets_one_event_and_the_audit_log_one_entry() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(410, latency_ms=SECOND)
        subscription = await world.subscribe(URL)
        for _ in range(5):
            await world.publish()
        await world.wait(HOUR)
        assert (await world.event_types()).count("homing.subscription.gone") == 1
        entries, _ = await world.audit.entries(AuditFilter(), before_id=None, limit=10)
        (entry,) = [it for it in entries if it.action == "subscriptions.gone"]
        assert (entry.who.name, entry.tenant) == ("the receiver", "default")
        assert '"active":false' in entry.after
        assert subscription.id

    live(story, options())


def test_attempts_in_flight_end_too_whatever_they_get() -> None:
    async def story(world: World) -> None:
        codes = iter([200] * 15)
        world.sender.scripts[URL] = lambda _: Reply(code=next(codes))
        subscription = await world.subscribe(URL)
        for _ in range(15):
            await world.publish()
        await world.settled()  # Enough successes for several slots.
        replies = iter([(410, 1), (500, 2), (None, 3), (200, 4)])

        def script(_: Hit) -> Reply:
            code, seconds = next(replies, (500, 5))
            return Reply(code=code or 503, latency_ms=seconds * SECOND - 100)

        world.sender.scripts[URL] = script
        for _ in range(4):
            await world.publish()
        await world.wait(HOUR)
        assert len(world.hits(URL)) == 19
        last = [(row.status, row.reason) for row in (await own(world))[-4:]]
        gone = (Status.CANCELLED, Reason.GONE)
        assert last == [gone, gone, gone, (Status.DELIVERED, None)]
        assert not (await stored(world, subscription)).active
        await balanced(world)

    live(story, options())


def test_a_410_about_the_old_url_is_ignored() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(410, latency_ms=2 * SECOND)
        subscription = await world.subscribe(URL)
        await world.publish()
        await world.wait(SECOND)
        await world.engine.change(subscription.id, changed(url=OTHER))
        await world.wait(HOUR)
        assert (await stored(world, subscription)).active
        assert (await world.only_delivery()).status is Status.DELIVERED
        assert len(world.hits(OTHER)) == 1

    live(story, options())


def test_a_410_of_an_attempt_from_before_it_was_activated_again_is_ignored() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(410, latency_ms=2 * SECOND)
        subscription = await world.subscribe(URL)
        await world.publish()
        await world.wait(SECOND)
        await world.engine.change(subscription.id, changed(active=False))
        await world.engine.change(subscription.id, changed(active=True))
        world.sender.scripts[URL] = always(200)
        await world.wait(HOUR)
        assert (await stored(world, subscription)).active
        assert (await world.only_delivery()).status is Status.DELIVERED

    live(story, options())


def test_a_person_activates_it_again_and_replays_what_was_cancelled() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(410)
        subscription = await world.subscribe(URL)
        await world.publish()
        await world.wait(SECOND)
        cancelled = await world.only_delivery()
        world.sender.scripts[URL] = always(200)
        again = await world.engine.change(subscription.id, changed(active=True))
        assert (again.active, again.receiver) == (True, None)
        assert (await world.publish()).deliveries == 1
        await world.engine.replay(cancelled.delivery.id)
        await world.wait(SECOND)
        statuses = [row.status for row in await own(world)]
        assert statuses == [Status.CANCELLED, Status.DELIVERED, Status.DELIVERED]

    live(story, options())


def test_a_replay_to_a_subscription_that_is_gone_is_one_attempt() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(410)
        subscription = await world.subscribe(URL)
        await world.publish()
        await world.wait(SECOND)
        (row,) = await own(world)
        await world.engine.replay(row.delivery.id)
        await world.wait(DAY)
        assert len(world.hits(URL)) == 2
        rows = await own(world)
        assert [(it.status, it.reason) for it in rows] == [(Status.CANCELLED, Reason.GONE)] * 2
        world.sender.scripts[URL] = always(200)
        await world.engine.replay(row.delivery.id)
        await world.wait(SECOND)
        assert (await own(world))[-1].status is Status.DELIVERED
        assert not (await stored(world, subscription)).active

    live(story, options())


def test_activating_it_while_deliveries_are_being_cancelled_keeps_the_others() -> None:
    async def story(world: World) -> None:
        subscription = await world.subscribe(URL)
        await world.engine.freeze(subscription.endpoint_id, by="ada")
        for _ in range(20):
            await world.publish()
        before = await stored(world, subscription)
        gone = set_gone(before, now=world.clock.now())
        endpoint = await world.endpoint(URL)
        await world.admin.subscription_gone(
            gone, cleanup_job_id=1, notices=(), for_people=(), bucket=endpoint.bucket
        )
        await world.admin.bound_gone(subscription.id)
        (job,) = await world.admin.cleanup_jobs()
        await world.admin.run_cleanup_job(
            job, target=endpoint, except_ids=frozenset(), now=world.clock.now(), limit=5
        )
        await world.engine.change(subscription.id, changed(active=True))
        await world.engine.enable(subscription.endpoint_id, by="ada")
        await world.wait(HOUR)
        assert await world.admin.cleanup_jobs() == []
        statuses = [row.status for row in await own(world)]
        assert statuses == [Status.CANCELLED] * 5 + [Status.DELIVERED] * 15
        await balanced(world)

    live(story, options())


def test_a_probe_that_gets_a_410_ends_the_subscription_of_a_disabled_url() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)
        subscription = await world.subscribe(URL)
        for _ in range(150):
            await world.publish()
        await world.wait(5 * 60 * SECOND)
        assert (await world.endpoint(URL)).health.state is State.DISABLED
        world.sender.scripts[URL] = always(410)
        seen = len(world.hits(URL))
        await world.wait(DAY)
        assert len(world.hits(URL)) == seen + 1
        assert not (await stored(world, subscription)).active
        assert {row.status for row in await own(world)} == {Status.CANCELLED}
        await balanced(world)

    live(story, options())


def test_a_test_send_that_gets_a_410_changes_nothing() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(410)
        subscription = await world.subscribe(URL)
        await world.engine.test_send(subscription.id)
        await world.wait(HOUR)
        assert (await stored(world, subscription)).active

    live(story, options())


def test_a_crash_after_the_subscription_was_set_inactive_loses_nothing() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(410)
        subscription = await world.subscribe(URL)
        dead: list[int] = []
        settle = world.flow.settle

        async def dies(batch: Any) -> SettleResult:
            if dead or not await is_gone():
                return await settle(batch)
            dead.append(1)
            raise StoreUnavailable

        async def is_gone() -> bool:
            return not (await stored(world, subscription)).active

        world.flow.settle = dies  # type: ignore[method-assign]
        for _ in range(3):
            await world.publish()
        await world.settled()
        assert dead
        await world.crash()
        await world.wait(HOUR)
        assert {(it.status, it.reason) for it in await own(world)} == {
            (Status.CANCELLED, Reason.GONE)
        }
        assert (await world.event_types()).count("homing.subscription.gone") == 1
        await balanced(world)

    live(story, options())


def test_a_reply_that_is_lost_leads_to_one_change() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(410)
        await world.subscribe(URL)
        lost: list[int] = []
        change = world.admin.subscription_gone

        async def unanswered(*args: Any, **more: Any) -> Any:
            done = await change(*args, **more)
            if not lost:
                lost.append(1)
                raise StoreUnavailable
            return done

        world.admin.subscription_gone = unanswered  # type: ignore[method-assign]
        await world.publish()
        await world.wait(HOUR)
        assert lost
        assert (await world.only_delivery()).reason is Reason.GONE
        assert (await world.event_types()).count("homing.subscription.gone") == 1
        assert await world.admin.cleanup_jobs() == []

    live(story, options())


def test_a_catalog_that_cannot_be_read_after_the_change_delays_no_notice() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(410)
        await world.subscribe(URL, "a.*")
        await world.subscribe(OTHER, "homing.*")
        change, read, failing = world.admin.subscription_gone, world.admin.subscriptions_since, [0]

        async def changing(*args: Any, **more: Any) -> Any:
            done = await change(*args, **more)
            failing[0] = 1
            return done

        async def reading(*args: Any, **more: Any) -> Any:
            if failing[0] == 1:
                failing[0] = 2
                raise StoreUnavailable
            return await read(*args, **more)

        world.admin.subscription_gone = changing  # type: ignore[method-assign]
        world.admin.subscriptions_since = reading  # type: ignore[method-assign]
        await world.publish("a.b")
        await world.wait(10 * SECOND)
        assert failing == [2]
        assert len(world.hits(OTHER)) == 1
        assert (await world.only_delivery()).reason is Reason.GONE

    live(story, options())


def first_attempts(world: World) -> list[str]:
    return [hit.delivery for hit in world.sender.hits if hit.headers["homing-attempt"] == "1"]


def test_what_stays_after_a_410_goes_before_what_was_accepted_after_it() -> None:
    """Activated again before its deliveries were cancelled: they are read again, in order."""

    async def story(world: World) -> None:
        mine = await world.subscribe(URL)
        await world.subscribe(URL)
        run, refusing = world.admin.run_cleanup_job, [True]

        async def refused(*args: Any, **more: Any) -> Any:
            if refusing:
                raise StoreUnavailable
            return await run(*args, **more)

        world.admin.run_cleanup_job = refused  # type: ignore[method-assign]
        replies = iter([410])
        world.sender.scripts[URL] = lambda _: Reply(next(replies, 200), latency_ms=SECOND)
        for _ in range(4):
            await world.publish("order.made")
        await world.wait(SECOND + 500)  # The other one's first delivery is in flight.
        assert not (await stored(world, mine)).active
        refusing.clear()
        await world.engine.change(mine.id, changed(active=True))
        await world.wait(HOUR)
        sent = first_attempts(world)
        assert sent == sorted(sent)
        assert len(sent) == 8
        await balanced(world)

    live(story, options())


def test_a_410_cancels_what_was_accepted_while_the_clock_was_ahead() -> None:
    async def story(world: World) -> None:
        await restart(world, ahead_ms=DAY)
        subscription = await world.subscribe(URL)
        await world.engine.freeze(subscription.endpoint_id, by="ada")
        for _ in range(5):
            await world.publish()
        await restart(world, ahead_ms=0)
        world.sender.scripts[URL] = always(410)
        await world.engine.enable(subscription.endpoint_id, by="ada")
        await world.wait(HOUR)
        assert {(it.status, it.reason) for it in await own(world)} == {
            (Status.CANCELLED, Reason.GONE)
        }
        assert len(world.hits(URL)) == 1

    live(story, options())


def test_a_replay_after_a_410_is_sent_although_the_clock_was_set_back_since() -> None:
    async def story(world: World) -> None:
        await restart(world, ahead_ms=DAY)
        world.sender.scripts[URL] = always(410)
        await world.subscribe(URL)
        await world.publish()
        await world.wait(SECOND)
        cancelled = await world.only_delivery()
        await restart(world, ahead_ms=0)
        world.sender.scripts[URL] = always(200)
        await world.engine.replay(cancelled.delivery.id)
        await world.wait(SECOND)
        assert (await own(world))[-1].status is Status.DELIVERED

    live(story, options())


async def restart(world: World, *, ahead_ms: int) -> None:
    """Start a new process whose clock is ahead of the true time by so much."""
    clock = VirtualClock(asyncio.get_running_loop(), start_ms=START_MS + ahead_ms)
    world.clock = world.sender._clock = clock
    await world.crash()
