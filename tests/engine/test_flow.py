"""Publishing, lanes, changes by people and replays, on virtual time.

Promised: what-homing-promises.md#publishing,
what-homing-promises.md#order-of-acceptance,
what-homing-promises.md#lanes-and-fairness.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from engine.world import DAY, HOUR, MINUTE, SECOND, World, always, balanced, live
from homing.engine.options import EngineOptions
from homing.errors import (
    AlreadyFinished,
    EventConflict,
    ShuttingDown,
    StoreUnavailable,
    TooLarge,
)
from homing.model import Lane, Status
from homing.policy.admission import EventDraft
from homing.ports import SettleResult

URL = "https://receiver.example/hook"
OTHER = "https://other.example/hook"


def test_an_event_goes_to_every_matching_subscription_of_its_tenant_only() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, "a.*")
        await world.subscribe(OTHER, "a.b")
        await world.subscribe(OTHER, "c")
        await world.subscribe(URL, "a.*", tenant="stranger")
        receipt = await world.publish("a.b")
        await world.settled()
        assert receipt.deliveries == 2
        assert sorted(hit.url for hit in world.sender.hits) == [OTHER, URL]
        await balanced(world)

    live(story)


def test_the_same_id_twice_is_one_event_and_another_content_is_a_conflict() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        first = await world.publish(key="k-1", data={"n": 1})
        again = await world.publish(key="k-1", data={"n": 1})
        assert (first.key, first.deliveries) == (again.key, again.deliveries)
        assert (first.new, again.new) == (True, False)
        with pytest.raises(EventConflict) as caught:
            await world.publish(key="k-1", data={"n": 2})
        assert caught.value.problems[0].field == "events[0].id"
        await world.settled()
        assert len(world.sender.hits) == 1

    live(story)


def test_a_conflict_in_a_batch_refuses_all_of_it_and_names_both() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        drafts = [
            EventDraft(tenant="default", type="a", data=b"1", key="x"),
            EventDraft(tenant="default", type="a", data=b"1", key="x"),
            EventDraft(tenant="default", type="a", data=b"2", key="x"),
        ]
        receipts = await world.engine.publish(drafts[:2])
        assert receipts[0].key == receipts[1].key == "x"
        with pytest.raises(EventConflict) as caught:
            await world.engine.publish(drafts)
        assert caught.value.problems[0].field == "events[2].id"
        assert "events[0]" in caught.value.problems[0].reason
        await balanced(world)

    live(story)


def test_many_publishers_share_a_commit_and_one_conflict_fails_nobody_else() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        await world.publish(key="taken", data=1)
        before = world.engine.pulse().commits["publish"]
        calls = [world.publish(key=f"k-{n}") for n in range(50)]
        calls.insert(25, world.publish(key="taken", data=2))
        results = await asyncio.gather(*calls, return_exceptions=True)
        failed = [result for result in results if isinstance(result, BaseException)]
        assert len(failed) == 1
        assert isinstance(failed[0], EventConflict)
        assert world.engine.pulse().commits["publish"] - before <= 2

    live(story)


def test_a_request_that_would_fan_out_too_far_is_refused_whole() -> None:
    async def story(world: World) -> None:
        for n in range(4):
            await world.subscribe(f"https://r{n}.example/")
        with pytest.raises(TooLarge):
            await world.publish()
        assert await world.deliveries() == []

    live(story, EngineOptions(request_deliveries_max=3))


def test_first_attempts_of_one_endpoint_start_in_the_order_of_acceptance() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=7)
        await world.subscribe(URL)
        for n in range(300):
            await world.publish(data={"n": n})
        await world.wait(MINUTE)
        order = [msgspec.json.decode(hit.body)["data"]["n"] for hit in world.sender.hits]
        assert order == list(range(300))

    live(story, EngineOptions(ready_max=20))


def test_retries_never_delay_a_first_attempt() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500, latency_ms=4 * SECOND)
        await world.subscribe(URL, "slow")
        await world.subscribe(OTHER, "fast")
        for _ in range(30):
            await world.publish("slow")
        await world.wait(5 * MINUTE)
        for n in range(60):
            await world.wait(SECOND)
            await world.publish("fast")
            await world.settled()
            assert world.hits(OTHER)[-1] == 5 * MINUTE + (n + 1) * SECOND

    live(story, EngineOptions(fresh_slots=4, retry_slots=4, endpoint_slots=2))


def test_tenants_take_turns_whatever_the_backlog_of_one() -> None:
    async def story(world: World) -> None:
        for n in range(8):
            url = f"https://big{n}.example/"
            world.sender.scripts[url] = always(200, latency_ms=100)
            await world.subscribe(url, tenant="big")
        world.sender.scripts[URL] = always(200, latency_ms=100)
        await world.subscribe(URL, tenant="small")
        for _ in range(100):
            await world.publish(tenant="big")
        await world.publish(tenant="small")
        await world.wait(400)
        assert len(world.hits(URL)) == 1

    live(story, EngineOptions(fresh_slots=2))


def test_a_cancelled_delivery_stays_cancelled_and_says_that_it_arrived() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=2 * SECOND)
        await world.subscribe(URL)
        await world.publish()
        await world.wait(SECOND)
        row = await world.only_delivery()
        await world.engine.cancel(row.delivery.id)
        await world.wait(5 * SECOND)
        row = await world.only_delivery()
        assert (row.status, row.arrived) == (Status.CANCELLED, True)
        (attempt,) = await world.views.attempts(row.delivery.id)
        assert attempt.code == 200
        await balanced(world)
        with pytest.raises(AlreadyFinished):
            await world.engine.cancel(row.delivery.id)

    live(story)


def test_a_queued_delivery_that_is_cancelled_is_not_sent() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=2 * SECOND)
        await world.subscribe(URL)
        for _ in range(3):
            await world.publish()
        await world.wait(SECOND)
        rows = await world.deliveries()
        await world.engine.cancel(rows[-1].delivery.id)
        await world.wait(MINUTE)
        assert len(world.hits(URL)) == 2

    live(story)


def test_a_test_send_goes_out_in_every_state_and_counts_for_nothing() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)
        subscription = await world.subscribe(URL)
        await world.engine.freeze(subscription.endpoint_id, by="ada")
        attempt = await world.engine.test_send(subscription.id)
        assert (attempt.lane, attempt.code) == (Lane.TEST, 500)
        assert (await world.endpoint(URL)).health.attempts == 0
        assert await world.views.attempts(attempt.delivery_id) == [attempt]
        assert await world.deliveries() == []

    live(story)


def test_a_stop_refuses_publishing_finishes_what_is_in_flight_and_settles() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=3 * SECOND)
        await world.subscribe(URL)
        for _ in range(3):
            await world.publish()
        await world.wait(SECOND)
        await world.engine.stop(grace_ms=30_000)
        assert world.since_start() == 3 * SECOND
        rows = await world.deliveries()
        assert [row.status for row in rows].count(Status.DELIVERED) == 1
        with pytest.raises(ShuttingDown):
            await world.publish()
        await world.start()
        await world.wait(MINUTE)
        assert {row.status for row in await world.deliveries()} == {Status.DELIVERED}
        assert len(world.hits(URL)) == 3

    live(story)


def test_while_settles_cannot_be_written_nothing_new_starts_and_nothing_is_lost() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=100)
        await world.subscribe(URL)
        for _ in range(10):
            await world.publish()
        await world.wait(50)
        real = world.flow.settle

        async def broken(batch: object) -> SettleResult:
            raise StoreUnavailable("the disk is full")

        world.flow.settle = broken  # type: ignore[method-assign]
        await world.wait(MINUTE)
        assert len(world.hits(URL)) == 2  # The second began before the store was known to fail.
        assert not world.engine.pulse().store_ok
        assert world.engine.pulse().silent_since is None  # It does respond.
        assert world.engine.pulse().due_since is None or world.engine.pulse().unsettled == 0
        world.flow.settle = real  # type: ignore[method-assign]
        await world.wait(MINUTE)
        assert len(world.hits(URL)) == 10
        assert world.engine.pulse().store_ok

    live(story)


@pytest.mark.parametrize("call", ["publish", "settle"])
def test_a_store_that_does_not_respond_is_not_well_after_five_seconds(call: str) -> None:
    """A disk that hangs raises no error: without this, the store would seem idle."""

    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)  # A success would wait for others first.
        await world.subscribe(URL)
        real, held = getattr(world.flow, call), asyncio.Event()

        async def hangs(*given: Any, **named: Any) -> Any:
            await held.wait()
            return await real(*given, **named)

        setattr(world.flow, call, hangs)
        begun = world.clock.now()
        publishing = asyncio.create_task(world.publish())
        await world.wait(5 * SECOND - 1)
        assert (world.engine.pulse().store_ok, world.engine.pulse().silent_since) == (True, None)
        await world.wait(SECOND)
        assert (world.engine.pulse().store_ok, world.engine.pulse().silent_since) == (False, begun)
        held.set()
        await publishing
        await world.settled()
        assert (world.engine.pulse().store_ok, world.engine.pulse().silent_since) == (True, None)
        assert len(world.hits(URL)) == 1

    live(story)


def test_a_publish_that_cannot_commit_is_refused_and_the_next_one_works() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        real = world.flow.publish

        async def broken(*_: object, **__: object) -> list[object]:
            raise StoreUnavailable("the disk is full")

        world.flow.publish = broken  # type: ignore[method-assign,assignment]
        with pytest.raises(StoreUnavailable):
            await world.publish(key="again")
        world.flow.publish = real  # type: ignore[method-assign]
        await world.publish(key="again")
        await world.settled()
        assert len(world.sender.hits) == 1

    live(story)


def test_an_idle_server_runs_at_most_one_statement_in_ten_seconds() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        for _ in range(20):
            await world.publish()
        await world.wait(MINUTE)
        before = world.db.statements
        await world.wait(HOUR)
        assert world.db.statements - before <= 360 // 10

    live(story)


def test_history_past_retention_is_removed_and_what_is_pending_stays() -> None:
    async def story(world: World) -> None:
        subscription = await world.subscribe(URL)
        for _ in range(30):
            await world.publish()
        await world.wait(2 * DAY)
        await world.engine.freeze(subscription.endpoint_id, by="ada")
        await world.publish()
        await world.wait(30 * HOUR)
        rows = [row for row in await world.deliveries() if row.event_type == "a.b"]
        assert [row.status for row in rows] == [Status.PENDING]

    live(story, EngineOptions(retention_ms=DAY))


def test_a_backlog_larger_than_memory_may_hold_is_delivered_in_order_and_within_the_bound() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=10)
        await world.subscribe(URL)
        for n in range(200):
            await world.publish(data={"n": n, "pad": "x" * 5_000})
        held = []
        for _ in range(400):
            await world.wait(10)
            held.append(world.engine.pulse().memory_bytes)
        order = [msgspec.json.decode(hit.body)["data"]["n"] for hit in world.sender.hits]
        assert order == list(range(200))
        assert max(held) < 3 * 100_000  # the bound, and one load beyond it

    live(story, EngineOptions(ready_bytes_max=100_000))
