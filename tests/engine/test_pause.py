"""A paused subscription: its deliveries wait, its windows do not run, others go on.

Promised: what-homing-promises.md#pauses.
"""

from __future__ import annotations

from typing import Any

import pytest

from engine.world import DAY, HOUR, MINUTE, SECOND, Reply, World, always, balanced, changed, live
from homing.engine.options import EngineOptions
from homing.errors import Conflict, StoreUnavailable
from homing.model import Reason, State, Status
from homing.policy.health import HealthRules
from homing.ports.flow import DueAsk

A, B = "https://a.example/hook", "https://b.example/hook"
FEW = HealthRules(consecutive_disable=3)


def _changes(world: World) -> int:
    """How many rows were written so far."""
    return world.db._writer._open()[0].total_changes()


async def _pending(world: World) -> int:
    return len(await world.deliveries(status=Status.PENDING))


def test_events_wait_while_a_subscription_is_paused_and_go_in_order_when_it_is_resumed() -> None:
    async def story(world: World) -> None:
        sub = await world.subscribe(A)
        await world.engine.pause(sub.id)
        keys = [(await world.publish()).key for _ in range(5)]
        await world.wait(3 * HOUR)
        assert world.hits() == []
        assert await _pending(world) == 5
        await world.engine.resume(sub.id)
        await world.wait(SECOND)
        assert len(world.hits()) == 5
        rows = await world.deliveries()
        assert [row.event_key for row in rows] == keys
        assert {row.status for row in rows} == {Status.DELIVERED}
        assert [hit.delivery for hit in world.sender.hits] == sorted(
            hit.delivery for hit in world.sender.hits
        )
        await balanced(world)

    live(story)


def test_pausing_and_resuming_write_one_row_each_whatever_waits() -> None:
    async def story(world: World) -> None:
        sub = await world.subscribe(A)
        await world.engine.pause(sub.id)
        for _ in range(50):
            await world.publish()
        before = _changes(world)
        await world.engine.resume(sub.id)
        resumed = _changes(world) - before
        await world.engine.pause(sub.id)
        # The subscription, the catalog's version, and once more the subscription, with its version.
        assert resumed == 3

    live(story)


def test_an_attempt_in_flight_finishes_and_counts() -> None:
    async def story(world: World) -> None:
        sub = await world.subscribe(A)
        world.sender.scripts[A] = always(500, latency_ms=2_000)
        await world.publish()
        await world.wait(SECOND)
        await world.engine.pause(sub.id)
        await world.wait(2 * SECOND)
        endpoint = await world.endpoint(A)
        assert endpoint.health.consecutive_failures == 1
        row = (await world.only_delivery()).delivery
        assert row.attempts == 1
        assert row.t0 == world.start_ms + 2_000
        # The pause has moved its times by the second that it lasted when the attempt ended.
        await world.wait(HOUR)
        assert len(world.hits()) == 1

    live(story)


def test_due_times_and_windows_move_by_the_length_of_a_pause() -> None:
    async def story(world: World) -> None:
        sub = await world.subscribe(A)
        world.sender.scripts[A] = always(500)
        await world.publish()
        await world.wait(10 * SECOND)
        await world.engine.pause(sub.id)
        await world.wait(30 * SECOND)
        await world.engine.resume(sub.id)
        await world.wait(100 * HOUR)
        # Retry n is due ((2 ** n) - 1) * 84.8 s after the failure; all move by 30 s.
        expected = [0] + [((1 << n) - 1) * 84_800 + 30_000 for n in range(1, 12)]
        assert world.hits() == expected
        row = await world.only_delivery()
        assert (row.status, row.reason) == (Status.DROPPED, Reason.EXHAUSTED)

    live(story)


def test_several_pauses_add_up_and_one_that_outlasts_the_window_drops_nothing() -> None:
    async def story(world: World) -> None:
        sub = await world.subscribe(A)
        world.sender.scripts[A] = always(500)
        await world.publish()
        await world.wait(MINUTE)
        for pause_ms in (10 * SECOND, 4 * DAY):
            await world.engine.pause(sub.id)
            await world.wait(pause_ms)
            await world.engine.resume(sub.id)
            await world.wait(10 * SECOND)
        await world.wait(100 * HOUR)
        paused = 10 * SECOND + 4 * DAY
        assert world.hits() == [0] + [((1 << n) - 1) * 84_800 + paused for n in range(1, 12)]

    live(story)


def test_a_delivery_accepted_in_a_pause_gets_its_whole_window() -> None:
    async def story(world: World) -> None:
        sub = await world.subscribe(A)
        await world.engine.pause(sub.id)
        await world.wait(DAY)
        await world.publish()
        await world.wait(5 * DAY)
        await world.engine.resume(sub.id)
        world.sender.scripts[A] = always(500)
        await world.wait(SECOND)
        row = (await world.only_delivery()).delivery
        assert world.hits() == [6 * DAY]
        assert row.t0 == world.start_ms + 6 * DAY

    live(story)


def test_other_subscriptions_of_the_endpoint_go_on_at_once() -> None:
    async def story(world: World) -> None:
        slow = await world.subscribe(A, "slow.*")
        await world.subscribe(A, "quick.*")
        await world.engine.pause(slow.id)
        for _ in range(3):
            await world.publish("slow.one")
        await world.publish("quick.one")
        await world.wait(SECOND)
        assert [row.event_type for row in await world.deliveries(status=Status.DELIVERED)] == [
            "quick.one"
        ]
        await world.crash()
        await world.publish("quick.two")
        await world.wait(SECOND)
        done = [row.event_type for row in await world.deliveries(status=Status.DELIVERED)]
        assert done == ["quick.one", "quick.two"]
        await world.engine.resume(slow.id)
        await world.wait(SECOND)
        assert await _pending(world) == 0

    live(story)


def test_rows_of_a_paused_subscription_are_read_about_once_however_many_stand_in_front() -> None:
    async def story(world: World) -> None:
        slow = await world.subscribe(A, "slow.*")
        await world.subscribe(A, "quick.*")
        await world.engine.pause(slow.id)
        for _ in range(300):
            await world.publish("slow.one")
        await world.crash()  # Nothing is known of what is pending: the store must be read.
        asks: list[DueAsk] = []
        due = world.flow.due

        async def watched(given: list[DueAsk], *, now: int) -> object:
            asks.extend(given)
            return await due(given, now=now)

        world.flow.due = watched  # type: ignore[assignment,method-assign]
        for _ in range(3):
            await world.publish("quick.one")
            await world.wait(SECOND)
        assert len(world.hits()) == 3
        later = [ask for ask in asks if ask.seen]
        assert len(asks) - len(later) <= 2
        queue = next(iter(world.engine._dispatcher.queues.values()))
        assert queue.idle

    live(story)


def test_a_paused_delivery_is_no_probe_and_with_only_paused_ones_there_is_none() -> None:
    async def story(world: World) -> None:
        slow = await world.subscribe(A, "slow.*")
        quick = await world.subscribe(A, "quick.*")
        world.sender.scripts[A] = always(500)
        for _ in range(4):
            await world.publish("slow.one")
        await world.wait(SECOND)
        assert (await world.endpoint(A)).health.state is State.DISABLED
        made = len(world.hits())
        await world.engine.pause(slow.id)
        await world.wait(HOUR)
        assert len(world.hits()) == made
        await world.publish("quick.one")
        await world.wait(SECOND)
        assert len(world.hits()) == made + 1  # It is the probe, at once: its time has come.
        await world.engine.pause(quick.id)
        await world.wait(HOUR)
        assert len(world.hits()) == made + 1
        world.sender.scripts[A] = always(200)
        await world.engine.resume(slow.id)
        await world.wait(11 * MINUTE)
        assert (await world.endpoint(A)).health.state is State.ENABLED

    live(story, EngineOptions(health=FEW))


def test_nothing_expires_in_a_pause_while_the_endpoint_is_frozen() -> None:
    async def story(world: World) -> None:
        sub = await world.subscribe(A)
        endpoint = await world.endpoint(A)
        await world.engine.freeze(endpoint.id, by="op")
        await world.publish()
        await world.wait(DAY)
        await world.engine.pause(sub.id)
        await world.wait(10 * DAY)
        assert await _pending(world) == 1
        await world.engine.resume(sub.id)
        await world.wait(24 * HOUR)
        assert await _pending(world) == 1
        await world.wait(2 * HOUR)
        row = await world.only_delivery()
        assert (row.status, row.reason) == (Status.DROPPED, Reason.EXPIRED)
        assert row.finished_at is not None
        window = 2047 * 84_800
        assert 0 <= row.finished_at - (world.start_ms + window + 10 * DAY) <= MINUTE

    live(story)


def test_a_delivery_paused_until_the_retention_ends_is_dropped_as_expired() -> None:
    async def story(world: World) -> None:
        sub = await world.subscribe(A)
        await world.engine.pause(sub.id)
        await world.publish()
        await world.wait(29 * DAY)
        assert await _pending(world) == 1
        await world.wait(DAY + 2 * HOUR)
        row = await world.only_delivery()
        assert (row.status, row.reason) == (Status.DROPPED, Reason.EXPIRED)
        assert row.finished_at is not None
        assert row.finished_at >= row.delivery.accepted_at + 30 * DAY
        await balanced(world)

    live(story)


def test_replays_wait_and_a_test_send_works() -> None:
    async def story(world: World) -> None:
        sub = await world.subscribe(A)
        await world.publish()
        await world.wait(SECOND)
        done = await world.only_delivery()
        await world.engine.pause(sub.id)
        await world.engine.replay(done.delivery.id)
        await world.wait(HOUR)
        assert len(world.hits()) == 1
        attempt = await world.engine.test_send(sub.id)
        assert attempt.code == 200
        assert len(world.hits()) == 2
        await world.engine.resume(sub.id)
        await world.wait(SECOND)
        assert len(world.hits()) == 3

    live(story)


def test_a_changed_url_takes_the_paused_deliveries_along() -> None:
    async def story(world: World) -> None:
        sub = await world.subscribe(A)
        await world.engine.pause(sub.id)
        await world.publish()
        await world.engine.change(sub.id, changed(url=B))
        await world.wait(HOUR)
        assert world.hits() == []
        await world.engine.resume(sub.id)
        await world.wait(SECOND)
        assert world.hits(B) == [HOUR]

    live(story)


def test_deleting_a_paused_subscription_cancels_its_deliveries() -> None:
    async def story(world: World) -> None:
        sub = await world.subscribe(A)
        await world.engine.pause(sub.id)
        await world.publish()
        await world.engine.unsubscribe(sub.id)
        await world.wait(MINUTE)
        row = await world.only_delivery()
        assert (row.status, row.reason) == (Status.CANCELLED, Reason.SUBSCRIPTION_DELETED)
        assert world.hits() == []

    live(story)


def test_what_waits_of_a_deleted_subscription_is_cancelled_however_old_it_is() -> None:
    async def story(world: World) -> None:
        sub = await world.subscribe(A)
        await world.engine.freeze(sub.endpoint_id, by="a person")
        await world.publish()
        await world.engine.pause(sub.id)
        await world.wait(3 * DAY)  # Without the pause its window would have ended.

        async def unavailable(*_: Any, **__: Any) -> Any:
            raise StoreUnavailable

        world.engine._core.admin.run_cleanup_job = unavailable  # type: ignore[method-assign]
        await world.engine.unsubscribe(sub.id)
        await world.wait(2 * HOUR)  # The search for expired deliveries finds it first.
        row = await world.only_delivery()
        assert (row.status, row.reason) == (Status.CANCELLED, Reason.SUBSCRIPTION_DELETED)

    live(story)


def test_a_restart_and_an_enable_in_the_pause_change_nothing() -> None:
    async def story(world: World) -> None:
        sub = await world.subscribe(A)
        world.sender.scripts[A] = always(503)
        await world.publish()
        await world.wait(MINUTE)
        await world.engine.pause(sub.id)
        await world.wait(HOUR)
        await world.crash()
        await world.engine.enable((await world.endpoint(A)).id, by="op")
        await world.wait(HOUR)
        assert world.hits() == [0]
        await world.engine.resume(sub.id)
        await world.wait(25 * SECOND)
        assert world.hits() == [0, 84_800 + 2 * HOUR]

    live(story)


def test_a_subscription_that_is_read_cannot_be_paused() -> None:
    async def story(world: World) -> None:
        sub = await world.subscribe("")
        with pytest.raises(Conflict, match="no URL"):
            await world.engine.pause(sub.id)

    live(story)


def test_pausing_twice_keeps_the_first_time() -> None:
    async def story(world: World) -> None:
        sub = await world.subscribe(A)
        first = await world.engine.pause(sub.id)
        await world.wait(MINUTE)
        again = await world.engine.pause(sub.id)
        assert again.paused_since == first.paused_since == world.start_ms
        back = await world.engine.resume(sub.id)
        assert back.paused_since is None
        assert (await world.engine.resume(sub.id)).version == back.version

    live(story)


def test_a_rate_limited_neighbour_and_a_paused_one_share_an_endpoint() -> None:
    async def story(world: World) -> None:
        slow = await world.subscribe(A, "slow.*")
        await world.subscribe(A, "rated.*", rate_per_second=1)
        await world.engine.pause(slow.id)
        for _ in range(5):
            await world.publish("slow.one")
            await world.publish("rated.one")
        await world.wait(5 * SECOND)
        assert len(world.hits()) == 5
        await world.engine.resume(slow.id)
        await world.wait(SECOND)
        assert len(world.hits()) == 10

    live(story)


def test_a_receiver_that_fails_while_paused_and_resumed_gets_no_early_attempt() -> None:
    async def story(world: World) -> None:
        sub = await world.subscribe(A)
        seen: list[int] = []

        def script(hit: object) -> Reply:
            seen.append(world.since_start())
            return Reply(code=500)

        world.sender.scripts[A] = script
        for _ in range(20):
            await world.publish()
        await world.wait(MINUTE)
        for _ in range(10):
            await world.engine.pause(sub.id)
            await world.wait(SECOND)
            await world.engine.resume(sub.id)
            await world.wait(SECOND)
        await world.wait(20 * SECOND)
        assert len(seen) == 20 + 20
        assert min(seen[20:]) == 84_800 + 10 * SECOND

    live(story)
