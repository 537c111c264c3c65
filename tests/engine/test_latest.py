"""Order ``latest``: of one key only the newest event is sent, and nothing is lost of the newest.

Promised: what-homing-promises.md#only-the-newest-event-of-a-key.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from engine.outages import OUTAGES, STRICT, Net
from engine.test_order import OTHER, RETRY_MS, URL, failing, number, numbers, publish
from engine.world import (
    HOUR,
    MINUTE,
    SECOND,
    Reply,
    World,
    always,
    balanced,
    changed,
    failing_with,
    live,
)
from homing.engine.options import EngineOptions
from homing.errors import StoreUnavailable
from homing.model import Decided, Failure, Order, State, Status
from homing.policy.admission import EventDraft
from homing.policy.outage import OutageState


async def statuses(world: World) -> Counter[Status]:
    return Counter(it.status for it in await world.deliveries() if it.event_type == "a.b")


def test_a_newer_event_supersedes_those_that_are_not_in_flight() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=SECOND)
        await world.subscribe(URL, order=Order.LATEST)
        for n in range(10):
            await publish(world, "x", n)
            await world.settled()
        await world.wait(MINUTE)
        assert numbers(world) == [0, 9]
        assert world.sender.most_flying[URL] == 1
        assert await statuses(world) == {Status.DELIVERED: 2, Status.SUPERSEDED: 8}
        await balanced(world)

    live(story)


def test_what_superseded_a_delivery_is_stored() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=SECOND)
        await world.subscribe(URL, order=Order.LATEST)
        await publish(world, "x", 0, 1, 2)
        await world.wait(MINUTE)
        *older, newest = await world.deliveries()
        assert {it.status for it in older} == {Status.SUPERSEDED}
        assert {it.superseded_by for it in older} == {newest.delivery.event_id}
        assert numbers(world) == [2]

    live(story)


def test_other_keys_and_events_without_a_key_are_not_superseded() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=SECOND)
        await world.subscribe(URL, order=Order.LATEST)
        await publish(world, "x", 0)
        await publish(world, "y", 1)
        await publish(world, None, 2, 3)
        await world.wait(MINUTE)
        assert sorted(numbers(world)) == [0, 1, 2, 3]

    live(story)


def test_when_the_one_in_flight_fails_the_newer_one_goes_at_once() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = lambda hit: Reply(
            500 if number(hit) == 0 else 200, latency_ms=SECOND
        )
        await world.subscribe(URL, order=Order.LATEST)
        await publish(world, "x", 0)
        await world.settled()
        await publish(world, "x", 1)
        await world.wait(10 * SECOND)
        assert numbers(world) == [0, 1]
        first, _ = await world.deliveries()
        assert (first.status, first.delivery.attempts) == (Status.SUPERSEDED, 1)
        (attempt,) = await world.views.attempts(first.delivery.id)
        assert attempt.decided is Decided.SUPERSEDED
        await balanced(world)

    live(story)


def test_a_newer_event_takes_the_place_of_one_that_waits_for_its_retry() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = failing(0)
        await world.subscribe(URL, order=Order.LATEST)
        await publish(world, "x", 0)
        await world.wait(10 * SECOND)
        await publish(world, "x", 1)
        await publish(world, "x", 2)
        await world.wait(10 * SECOND)
        assert numbers(world) == [0]
        await world.wait(RETRY_MS)
        assert numbers(world) == [0, 2]
        assert world.hits()[-1] == RETRY_MS
        assert await statuses(world) == {Status.DELIVERED: 1, Status.SUPERSEDED: 2}
        await balanced(world)

    live(story)


def test_after_an_outage_the_receiver_gets_one_request_for_each_object() -> None:
    objects, updates = 50, 40

    async def story(world: World) -> None:
        heals_at = world.start_ms + 40 * HOUR
        world.sender.scripts[URL] = lambda hit: Reply(200 if hit.at >= heals_at else 500)
        subscription = await world.subscribe(URL, order=Order.LATEST)
        await world.engine.freeze(subscription.endpoint_id, by="me")
        for n in range(updates):
            await world.wait(40 * HOUR // updates - 1_000)
            drafts = [
                EventDraft(
                    "default", "a.b", json.dumps({"n": n}).encode(), order_key=f"object {it}"
                )
                for it in range(objects)
            ]
            await world.engine.publish(drafts)
            waiting = await world.deliveries(status=Status.PENDING)
            assert len(waiting) <= 2 * objects
        await world.wait(heals_at - world.clock.now())
        await world.engine.enable(subscription.endpoint_id, by="me")
        await world.wait(HOUR)
        assert len(world.sender.hits) == objects
        assert set(numbers(world)) == {updates - 1}
        superseded = objects * (updates - 1)
        assert await statuses(world) == {Status.DELIVERED: objects, Status.SUPERSEDED: superseded}
        await balanced(world)

    live(story)


def test_a_disabled_endpoint_is_probed_with_the_newest() -> None:
    async def story(world: World) -> None:
        heals_at = world.start_ms + HOUR
        world.sender.scripts[URL] = lambda hit: Reply(200 if hit.at >= heals_at else 500)
        await world.subscribe(URL, order=Order.LATEST)
        for key in range(101):
            await publish(world, f"k{key}", key)
        await world.wait(SECOND)
        assert (await world.endpoint(URL)).health.state is State.DISABLED
        for key in range(101):
            await publish(world, f"k{key}", 1_000 + key)
        await world.wait(2 * HOUR)
        assert (await world.endpoint(URL)).health.state is State.ENABLED
        delivered = [
            it for it in await world.deliveries(status=Status.DELIVERED) if it.event_type == "a.b"
        ]
        assert len(delivered) == 101
        assert {number(hit) for hit in world.sender.hits if hit.at >= heals_at} == {
            1_000 + key for key in range(101)
        }
        await balanced(world)

    live(story)


def test_a_replay_supersedes_nothing_and_a_later_event_supersedes_it() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, order=Order.LATEST)
        await publish(world, "x", 0)
        await world.wait(SECOND)
        (old,) = await world.deliveries()
        world.sender.scripts[URL] = always(200, latency_ms=SECOND)
        await publish(world, "x", 1)
        await world.settled()
        await publish(world, "x", 2)
        await world.engine.replay(old.delivery.id)
        await world.wait(10 * SECOND)
        assert numbers(world) == [0, 1, 2, 0]
        await publish(world, "x", 3)
        await world.settled()
        await world.engine.replay(old.delivery.id)
        await publish(world, "x", 4)
        await world.wait(10 * SECOND)
        assert numbers(world)[4:] == [3, 4]
        await balanced(world)

    live(story)


def test_a_key_waits_for_quiet_and_not_too_long() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, order=Order.LATEST, quiet_ms=2_000, max_wait_ms=5_000)
        await publish(world, "x", 0)
        await world.wait(1_000)
        await publish(world, "x", 1)
        await world.wait(1_500)
        assert numbers(world) == []
        await world.wait(1_000)
        assert numbers(world) == [1]
        assert world.hits() == [3_000]
        begun = world.since_start()
        for n in range(2, 12):
            await publish(world, "x", n)
            await world.wait(1_000)
        assert world.hits()[1] == begun + 5_000
        await world.wait(MINUTE)
        assert numbers(world)[-1] == 11
        await balanced(world)

    live(story)


def test_few_in_memory_or_a_crash_change_nothing() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = failing(*range(5), until=world.start_ms + MINUTE)
        await world.subscribe(URL, order=Order.LATEST)
        for n in range(5):
            await publish(world, "x", n)
        await world.crash()
        await publish(world, "x", 5)
        await world.wait(4 * RETRY_MS)
        assert numbers(world)[-1] == 5
        assert (await statuses(world))[Status.DELIVERED] == 1
        await balanced(world)

    live(story, EngineOptions(ready_max=1))


def test_after_a_change_of_url_the_newest_goes_to_the_new_one() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500, latency_ms=SECOND)
        subscription = await world.subscribe(URL, order=Order.LATEST)
        await publish(world, "x", 0)
        await world.settled()
        await world.engine.change(subscription.id, changed(url=OTHER))
        await publish(world, "x", 1)
        await world.wait(2 * RETRY_MS)
        assert numbers(world, OTHER) == [1]
        await balanced(world)

    live(story)


def test_a_newer_event_goes_after_all_that_were_accepted_without_an_order() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=SECOND)
        subscription = await world.subscribe(URL)
        await world.engine.freeze(subscription.endpoint_id, by="me")
        await publish(world, "x", 0, 1, 2)
        await world.engine.change(subscription.id, changed(order=Order.LATEST))
        await publish(world, "x", 3)
        await world.engine.enable(subscription.endpoint_id, by="me")
        await world.wait(MINUTE)
        assert numbers(world)[-1] == 3
        *others, last = world.hits()
        assert last >= max(others) + SECOND
        await balanced(world)

    live(story)


def test_a_sender_outage_ends_although_all_that_waits_has_the_order_latest() -> None:
    async def story(world: World) -> None:
        net = Net(world)
        await net.connect(order=Order.LATEST)
        net.out = OUTAGES["all refused"]
        await publish(world, "x", 1)
        await world.wait(30 * SECOND)
        assert world.engine.pulse().outage.state is OutageState.CONFIRMED
        net.out = None
        await world.wait(MINUTE)
        assert world.engine.pulse().outage.state is OutageState.NONE
        await net.unharmed()

    live(story, STRICT)


def test_a_timeout_while_newer_events_are_searched_for_leaves_one_slot() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, order=Order.LATEST)
        for n in range(40):  # Successes give the endpoint more slots.
            await publish(world, f"first {n}", n)
            await world.settled()
        world.sender.scripts[URL] = failing_with(Failure.TIMEOUT, latency_ms=SECOND)
        await publish(world, "times out", 40)
        await world.wait(10)
        newest = world.flow.newest

        async def slow(*args: Any, **more: Any) -> Any:
            await world.wait(2 * SECOND)
            return await newest(*args, **more)

        world.flow.newest = slow  # type: ignore[method-assign]
        await world.engine.publish(
            [
                EventDraft("default", "a.b", b"1", order_key=f"then {n}")
                for n in range(5)
                for _newer in range(2)  # so that the store is asked
            ]
        )
        before = len(world.hits())
        await world.wait(2_500)
        assert len(world.hits()) - before == 1

    live(story)


def _count_asked(world: World) -> list[int]:
    """How many deliveries the store is asked for, call by call."""
    asked: list[int] = []
    newest = world.flow.newest

    async def counted(deliveries: Any, **more: Any) -> Any:
        asked.append(len(deliveries))
        return await newest(deliveries, **more)

    world.flow.newest = counted  # type: ignore[method-assign]
    return asked


def test_the_only_process_asks_the_store_only_where_it_has_accepted_a_newer_event() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, order=Order.LATEST)
        await publish(world, "first", 0)  # It is read from the store, with its endpoint.
        await world.wait(MINUTE)
        asked = _count_asked(world)
        for n in range(1, 5):
            await publish(world, f"key {n}", n)
        await world.wait(MINUTE)
        assert asked == []
        assert sorted(numbers(world)) == [0, 1, 2, 3, 4]
        await publish(world, "x", 10, 11)
        await world.wait(MINUTE)
        assert asked == [1]
        assert numbers(world)[5:] == [11]

    live(story)


def test_a_publish_without_a_reply_is_searched_for_before_the_next_attempt() -> None:
    async def story(world: World) -> None:
        publish_rows = world.flow.publish

        async def no_reply(*args: Any, **more: Any) -> Any:
            await publish_rows(*args, **more)
            raise StoreUnavailable

        world.sender.scripts[URL] = always(200, latency_ms=SECOND)
        await world.subscribe(URL, order=Order.LATEST)
        for n in range(50):  # They take all slots.
            await publish(world, f"key {n}", n)
        await publish(world, "x", 100)
        world.flow.publish = no_reply  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailable):
            await publish(world, "x", 101)
        world.flow.publish = publish_rows  # type: ignore[method-assign]
        await world.wait(MINUTE)
        assert 100 not in numbers(world)
        assert 101 in numbers(world)

    live(story)


# --- more deliveries of one key than one step supersedes ----------------------------------------


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """One step supersedes few deliveries of a key."""
    monkeypatch.setattr("homing.store.latest.SUPERSEDED_MAX", 10)


@pytest.mark.usefixtures("few")
def test_all_that_waited_in_order_is_superseded_before_the_newest_is_sent() -> None:
    async def story(world: World) -> None:
        subscription = await world.subscribe(URL, order=Order.KEY)
        await world.engine.freeze(subscription.endpoint_id, by="me")
        await publish(world, "x", *range(35))
        await world.engine.change(subscription.id, changed(order=Order.LATEST))
        await world.engine.enable(subscription.endpoint_id, by="me")
        await world.wait(MINUTE)
        assert numbers(world) == [34]
        await balanced(world)

    live(story)


@pytest.mark.usefixtures("few")
def test_many_replays_are_superseded_before_a_newer_event_is_sent() -> None:
    async def story(world: World) -> None:
        subscription = await world.subscribe(URL, order=Order.LATEST)
        await publish(world, "x", 0)
        await world.wait(SECOND)
        (old,) = await world.deliveries()
        await world.engine.freeze(subscription.endpoint_id, by="me")
        for _ in range(25):
            await world.engine.replay(old.delivery.id)
        await publish(world, "x", 1)
        await world.engine.enable(subscription.endpoint_id, by="me")
        await world.wait(MINUTE)
        assert numbers(world) == [0, 1]
        await balanced(world)

    live(story)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("code", [200, 500])
def test_large_batches_of_one_key_leave_nothing_older_behind(code: int) -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = lambda hit: Reply(
            code if number(hit) == 0 else 200, latency_ms=SECOND
        )
        await world.subscribe(URL, order=Order.LATEST)
        await publish(world, "x", 0)
        await world.settled()  # It is in flight.
        for n in range(6):
            await publish(world, "x", *range(100 * n + 1, 100 * n + 31))
        await world.wait(10 * SECOND)
        assert numbers(world) == [0, 530]
        await balanced(world)

    live(story)


@pytest.mark.usefixtures("few")
def test_a_probe_that_waits_for_the_newest_of_its_key_is_not_sent_to_a_url_of_before() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)
        sub = await world.subscribe(URL, order=Order.LATEST)
        for key in range(101):
            await publish(world, f"k{key}", key)
        await world.wait(MINUTE)
        assert (await world.endpoint(URL)).health.state is State.DISABLED
        newest, hits = world.flow.newest, len(world.hits(URL))

        async def slow(*args: Any, **more: Any) -> Any:
            found = await newest(*args, **more)
            if not more.get("wait", True):
                world.flow.newest = newest  # type: ignore[method-assign]
                await world.engine.change(sub.id, changed(url=OTHER))
            return found

        world.flow.newest = slow  # type: ignore[method-assign]
        await world.wait(HOUR)
        assert world.flow.newest == newest, "a probe has waited"
        assert len(world.hits(URL)) == hits
        assert len(world.hits(OTHER)) == 101

    live(story)


def test_a_disabled_endpoint_is_probed_with_the_newest_of_many() -> None:
    async def story(world: World) -> None:
        heals_at = world.start_ms + HOUR
        world.sender.scripts[URL] = lambda hit: Reply(200 if hit.at >= heals_at else 500)
        await world.subscribe(URL, order=Order.LATEST)
        for key in range(101):
            await publish(world, f"k{key}", key)
        await world.wait(SECOND)
        assert (await world.endpoint(URL)).health.state is State.DISABLED
        for key in range(101):
            await publish(world, f"k{key}", *range(1_000, 1_031))
        await world.wait(2 * HOUR)
        healed = [number(hit) for hit in world.sender.hits if hit.at >= heals_at]
        assert healed == [1_030] * 101
        await balanced(world)

    live(story)
