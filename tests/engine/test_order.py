"""Order by key: one delivery of a key after the other, through failures, cancels and changes.

Promised: what-homing-promises.md#order-by-key.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from engine.world import HOUR, MINUTE, SECOND, Hit, Reply, World, always, balanced, changed, live
from homing.engine.options import EngineOptions
from homing.errors import StoreUnavailable
from homing.model import Lane, Order, Reason, Status
from homing.policy.admission import EventDraft
from homing.store.admin import Admin

URL = "https://a.example/"
OTHER = "https://b.example/"
RETRY_MS = 84_800  # the first retry


def number(hit: Hit) -> int:
    return int(json.loads(hit.body)["data"]["n"])


def numbers(world: World, url: str | None = None) -> list[int]:
    return [number(hit) for hit in world.sender.hits if url in (None, hit.url)]


async def publish(world: World, key: str | None, *ns: int) -> None:
    """Publish events with these numbers, as one batch."""
    await world.engine.publish(
        [EventDraft("default", "a.b", json.dumps({"n": n}).encode(), order_key=key) for n in ns]
    )


def failing(
    *ns: int, until: int = 1 << 62, at: Callable[[], int] = lambda: 0
) -> Callable[[Hit], Reply]:
    """A receiver that fails for events with these numbers until a time."""
    return lambda hit: Reply(500 if number(hit) in ns and hit.at < until else 200)


def test_deliveries_of_one_key_are_sent_one_after_the_other() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=SECOND)
        await world.subscribe(URL, order=Order.KEY)
        await publish(world, "x", *range(5))
        await publish(world, "x", *range(5, 10))
        await world.wait(MINUTE)
        assert numbers(world) == list(range(10))
        assert world.sender.most_flying[URL] == 1
        assert {it.status for it in await world.deliveries()} == {Status.DELIVERED}
        await balanced(world)

    live(story)


def test_a_key_that_fails_holds_only_itself() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = failing(0, until=world.start_ms + MINUTE)
        await world.subscribe(URL, order=Order.KEY)
        await publish(world, "x", 0, 1, 2)
        await publish(world, "y", 10, 11, 12)
        await publish(world, None, 20, 21)
        await world.wait(SECOND)
        assert sorted(numbers(world)) == [0, 10, 11, 12, 20, 21]
        assert [n for n in numbers(world) if n in {10, 11, 12}] == [10, 11, 12]
        await world.wait(RETRY_MS)
        assert [n for n in numbers(world) if n < 10] == [0, 0, 1, 2]

    live(story)


def test_without_an_order_keys_change_nothing() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = failing(0)
        await world.subscribe(URL)
        await publish(world, "x", 0, 1, 2)
        await world.wait(SECOND)
        assert numbers(world) == [0, 1, 2]

    live(story)


def test_when_one_is_dropped_the_next_goes_in_the_retry_lane_with_a_window_of_its_own() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = failing(0)
        await world.subscribe(URL, order=Order.KEY, policy="standard-webhooks")
        await publish(world, "x", 0, 1)
        await world.wait(80 * HOUR)
        first, second = await world.deliveries()
        assert (first.status, first.reason) == (Status.DROPPED, Reason.EXHAUSTED)
        assert second.status is Status.DELIVERED
        attempts = await world.views.attempts(second.delivery.id)
        assert [it.lane for it in attempts] == [Lane.RETRY]
        assert second.delivery.expires_at > first.delivery.expires_at + HOUR

    live(story)


def test_the_schedule_of_a_blocked_delivery_begins_when_it_is_unblocked() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = failing(0, until=world.start_ms + HOUR)
        await world.subscribe(URL, order=Order.KEY)
        await publish(world, "x", 0, 1)
        await world.wait(2 * HOUR)
        assert numbers(world)[-2:] == [0, 1]
        failing_second = failing(3)
        world.sender.scripts[URL] = lambda hit: (
            Reply(500) if number(hit) == 2 and hit.at < since + HOUR else failing_second(hit)
        )
        since = world.clock.now()
        await publish(world, "x", 2, 3)
        await world.wait(4 * HOUR)
        unblocked = next(hit.at for hit in world.sender.hits if number(hit) == 3)
        retried = [hit.at - unblocked for hit in world.sender.hits if number(hit) == 3]
        assert retried[:3] == [0, RETRY_MS, 3 * RETRY_MS]

    live(story)


def test_cancelling_the_first_one_lets_the_next_go() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = failing(0)
        await world.subscribe(URL, order=Order.KEY)
        await publish(world, "x", 0, 1)
        await world.wait(SECOND)
        first, _ = await world.deliveries()
        await world.engine.cancel(first.delivery.id)
        await world.wait(SECOND)
        assert numbers(world) == [0, 1]
        await balanced(world)

    live(story)


@pytest.mark.parametrize("written_after_ms", [None, 0, 50, 500])
def test_the_next_one_goes_although_the_reply_that_unblocked_it_was_lost(
    written_after_ms: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = failing(0)
        await world.subscribe(URL, order=Order.KEY)
        await publish(world, "x", 0, 1)
        await world.wait(SECOND)
        first, _ = await world.deliveries()
        release, calls, writes = Admin.release_keys, 0, list[asyncio.Task[None]]()

        async def without_a_reply(*args: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > 1:
                return await release(*args, **more)
            if written_after_ms is not None:
                writes.append(asyncio.ensure_future(later(written_after_ms, *args, **more)))
            await asyncio.sleep(0)
            raise StoreUnavailable

        async def later(ms: int, *args: Any, **more: Any) -> None:
            await asyncio.sleep(ms / 1000)
            await release(*args, **more)

        monkeypatch.setattr(Admin, "release_keys", without_a_reply)
        await world.engine.cancel(first.delivery.id)
        await world.wait(5 * SECOND)
        assert calls
        assert numbers(world) == [0, 1]
        await balanced(world)

    live(story)


def test_cancelling_one_in_flight_lets_the_next_go_when_that_attempt_has_ended() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=4 * SECOND)
        await world.subscribe(URL, order=Order.KEY)
        await publish(world, "x", 0, 1)
        await world.wait(SECOND)
        first, _ = await world.deliveries()
        await world.engine.cancel(first.delivery.id)
        await publish(world, "x", 2)
        await world.wait(2 * SECOND)
        assert numbers(world) == [0]
        await world.wait(20 * SECOND)
        assert numbers(world) == [0, 1, 2]
        assert world.sender.most_flying[URL] == 1

    live(story)


def test_a_key_whose_only_delivery_was_cancelled_in_flight_waits_for_that_attempt() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=4 * SECOND)
        await world.subscribe(URL, order=Order.KEY)
        await publish(world, "x", 0)
        await world.wait(SECOND)
        (first,) = await world.deliveries()
        await world.engine.cancel(first.delivery.id)
        await world.wait(SECOND)
        await publish(world, "x", 1)
        await world.wait(SECOND)
        assert numbers(world) == [0]
        await world.wait(10 * SECOND)
        assert numbers(world) == [0, 1]
        assert world.sender.most_flying[URL] == 1

    live(story)


def test_a_cancel_survives_a_crash() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = failing(0)
        await world.subscribe(URL, order=Order.KEY)
        await publish(world, "x", 0, 1)
        await world.wait(SECOND)
        first, _ = await world.deliveries()
        await world.admin.cancel_delivery(first.delivery.id, now=world.clock.now())
        await world.crash()
        await world.wait(SECOND)
        assert numbers(world) == [0, 1]

    live(story)


def test_blocked_deliveries_survive_a_crash() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = failing(0, until=world.start_ms + MINUTE)
        await world.subscribe(URL, order=Order.KEY)
        await publish(world, "x", 0, 1, 2)
        await world.wait(SECOND)
        await world.crash()
        await world.wait(2 * RETRY_MS)
        assert numbers(world) == [0, 0, 1, 2]

    live(story)


def test_a_replay_goes_behind_everything_pending_of_its_key() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, order=Order.KEY)
        await publish(world, "x", 0)
        await world.wait(SECOND)
        (old,) = await world.deliveries()
        world.sender.scripts[URL] = failing(1, until=world.clock.now() + MINUTE)
        await publish(world, "x", 1, 2)
        await world.wait(SECOND)
        await world.engine.replay(old.delivery.id)
        await publish(world, "x", 3)
        await world.wait(2 * RETRY_MS)
        assert numbers(world) == [0, 1, 1, 2, 0, 3]

    live(story)


def test_after_a_change_of_url_new_deliveries_wait_for_those_at_the_old_one() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=4 * SECOND)
        subscription = await world.subscribe(URL, order=Order.KEY)
        await publish(world, "x", 0, 1)
        await world.wait(SECOND)
        await world.engine.change(subscription.id, changed(url=OTHER))
        await publish(world, "x", 2)
        await world.wait(SECOND)
        assert numbers(world) == [0]
        await world.wait(MINUTE)
        assert numbers(world, URL) == [0]
        assert numbers(world, OTHER) == [1, 2]

    live(story)


def test_none_to_key_applies_to_later_events_which_wait_for_all_older_ones() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = failing(0, 1, until=world.start_ms + MINUTE)
        subscription = await world.subscribe(URL)
        await publish(world, "x", 0, 1)
        await world.wait(SECOND)
        await world.engine.change(subscription.id, changed(order=Order.KEY))
        await publish(world, "x", 2, 3)
        await world.wait(MINUTE)
        assert numbers(world) == [0, 1]
        await world.wait(RETRY_MS)
        assert numbers(world) == [0, 1, 0, 1, 2, 3]

    live(story)


def test_key_to_none_unblocks_all() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = failing(0)
        subscription = await world.subscribe(URL, order=Order.KEY)
        await publish(world, "x", 0, 1, 2)
        await world.wait(SECOND)
        assert numbers(world) == [0]
        await world.engine.change(subscription.id, changed(order=Order.NONE))
        await world.wait(SECOND)
        assert sorted(numbers(world)) == [0, 1, 2]
        await balanced(world)

    live(story)


def test_key_to_none_with_another_url_unblocks_all_there() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = world.sender.scripts[OTHER] = failing(0)
        subscription = await world.subscribe(URL, order=Order.KEY)
        await publish(world, "x", 0, 1, 2)
        await world.wait(SECOND)
        assert numbers(world) == [0]
        await world.engine.change(subscription.id, changed(order=Order.NONE, url=OTHER))
        await world.wait(SECOND)
        assert sorted(numbers(world, OTHER)) == [1, 2]
        await balanced(world)

    live(story)


def test_an_order_that_comes_back_at_once_holds_for_what_is_still_blocked() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = failing(0, until=world.start_ms + MINUTE)
        subscription = await world.subscribe(URL, order=Order.KEY)
        await publish(world, "x", *range(9))
        await world.wait(SECOND)
        await world.engine.change(subscription.id, changed(order=Order.NONE))
        await world.engine.change(subscription.id, changed(order=Order.KEY))
        await publish(world, "x", 9)
        await world.wait(HOUR)
        sent = numbers(world)
        assert sorted(set(sent)) == list(range(10))
        assert sent[-1] == 9
        await balanced(world)

    live(story, EngineOptions(step_rows=1))


def test_probes_take_deliveries_that_are_not_blocked() -> None:
    async def story(world: World) -> None:
        heals_at = world.start_ms + 3 * HOUR
        world.sender.scripts[URL] = lambda hit: Reply(200 if hit.at >= heals_at else 500)
        await world.subscribe(URL, order=Order.KEY)
        for key in range(120):
            await publish(world, f"k{key}", 1_000 * key, 1_000 * key + 1)
        await world.wait(4 * HOUR)
        sent = numbers(world)
        assert all(sent.index(1_000 * key) < sent.index(1_000 * key + 1) for key in range(120))
        assert {
            it.status for it in await world.deliveries(tenant="default") if it.event_type == "a.b"
        } == {Status.DELIVERED}
        await balanced(world)

    live(story)


def test_while_frozen_blocked_deliveries_expire_from_their_acceptance() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = failing(0)
        subscription = await world.subscribe(URL, order=Order.KEY)
        await publish(world, "x", 0, 1, 2)
        await world.wait(SECOND)
        await world.engine.freeze(subscription.endpoint_id, by="me")
        await world.wait(50 * HOUR)
        rows = [it for it in await world.deliveries() if it.event_type == "a.b"]
        assert {(it.status, it.reason) for it in rows} == {(Status.DROPPED, Reason.EXPIRED)}
        assert numbers(world) == [0]
        await balanced(world)

    live(story)


def test_a_deleted_subscription_leaves_nothing_blocked() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = failing(0)
        subscription = await world.subscribe(URL, order=Order.KEY)
        await publish(world, "x", 0, 1, 2)
        await world.wait(SECOND)
        await world.engine.unsubscribe(subscription.id)
        await world.wait(MINUTE)
        assert {it.status for it in await world.deliveries()} == {Status.CANCELLED}
        await balanced(world)

    live(story)


def test_nothing_stays_blocked_past_the_retention() -> None:
    async def story(world: World) -> None:
        policy = "standard-webhooks"
        world.sender.scripts[URL] = failing(*range(100))
        await world.subscribe(URL, order=Order.KEY, policy=policy)
        await publish(world, "x", *range(40))
        await world.wait(32 * 24 * HOUR)
        rows = await world.deliveries()
        expired = [it for it in rows if it.reason is Reason.EXPIRED and not it.delivery.attempts]
        assert len(expired) > 20
        await balanced(world)

    live(story)


def test_one_that_was_unblocked_goes_after_those_that_were_accepted_before() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=SECOND)
        await world.subscribe(URL, order=Order.KEY)
        await publish(world, "x", 0, 1)  # 1 waits for 0.
        await world.wait(SECOND // 2)
        await publish(world, None, 2, 3)
        await world.wait(MINUTE)
        assert numbers(world) == [0, 2, 3, 1]

    live(story, EngineOptions(endpoint_slots=1))
