"""Deliveries that wait for a rate: nothing is written again, and tenants take turns at a host."""

from __future__ import annotations

from typing import Any

import pytest

from engine.test_counts import check
from engine.world import HOUR, MINUTE, SECOND, World, always, balanced, changed, live
from homing.engine.options import EngineOptions
from homing.model import Lane, Status
from homing.policy.admission import EventDraft
from homing.ports import SettleBatch, SettleResult

URL = "https://receiver.example/hook"


async def publish_many(
    world: World, count: int, event_type: str, *, tenant: str = "default"
) -> None:
    draft = EventDraft(tenant=tenant, type=event_type, data=b'{"n":1}', key=None)
    for begin in range(0, count, 1_000):
        await world.engine.publish([draft] * min(1_000, count - begin))


class Written:
    """Counts settled outcomes and rows that are read."""

    def __init__(self, world: World) -> None:
        self.commits = self.waiting = self.finished = self.read = 0
        settle, due = world.flow.settle, world.flow.due

        async def counted(batch: SettleBatch) -> SettleResult:
            self.commits += 1
            self.waiting += len(batch.waiting)
            self.finished += len(batch.finished)
            return await settle(batch)

        async def looked(asks: Any, *, now: int) -> Any:
            responses = await due(asks, now=now)
            self.read += sum(len(it.fresh) + len(it.retry) for it in responses)
            return responses

        world.flow.settle, world.flow.due = counted, looked  # type: ignore[method-assign]


def test_what_waits_for_a_slow_rate_is_not_written_again() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, rate_per_second=0.1)
        written = Written(world)
        await publish_many(world, 20_000, "a.b")
        await world.wait(101 * SECOND)
        assert len(world.hits(URL)) == 11
        assert (written.waiting, written.finished) == (0, 11)
        assert written.commits <= 11
        assert written.read <= 11 * 40
        assert sum(world.engine.pulse().ready.values()) == 0

    live(story)


def test_retries_that_wait_for_a_slow_rate_are_not_written_again() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)
        sub = await world.subscribe(URL)
        await publish_many(world, 60, "a.b")
        await world.wait(SECOND)
        assert len(world.hits(URL)) == 60
        await world.engine.change(sub.id, changed(rate_per_second=0.1))
        await world.wait(90 * SECOND)
        written = Written(world)
        before = len(world.hits(URL))
        check(world.engine)
        await world.wait(2 * MINUTE)
        check(world.engine)
        assert len(world.hits(URL)) - before == 12
        assert written.waiting == 12  # each attempt that failed, and nothing else
        assert written.commits <= 12

    live(story)


@pytest.mark.parametrize("slow", [100, 400])
def test_other_subscriptions_of_the_endpoint_go_on(slow: int) -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, "slow.*", rate_per_second=0.1)
        await world.subscribe(URL, "quick.*")
        written = Written(world)
        await publish_many(world, slow, "slow.a")
        await publish_many(world, 50, "quick.a")
        await world.wait(5 * SECOND)
        done = [row for row in await world.deliveries() if row.status is Status.DELIVERED]
        assert sum(row.event_type == "quick.a" for row in done) == 50
        await world.wait(HOUR)
        done = [row for row in await world.deliveries() if row.status is Status.DELIVERED]
        assert sum(row.event_type == "slow.a" for row in done) == min(slow, 361)
        # Beyond those that wait in memory a row is written about once in the time that they take.
        assert written.waiting <= 2 * max(slow - 256, 0)
        await balanced(world)

    live(story)


def test_two_rates_at_one_endpoint_hold_each_for_itself() -> None:
    async def story(world: World) -> None:
        slow = await world.subscribe(URL, "slow.*", rate_per_second=1)
        quick = await world.subscribe(URL, "quick.*", rate_per_second=10)
        for _ in range(50):
            await world.publish("slow.a")
            await world.publish("quick.a")
        await world.wait(4_950)
        counts = {}
        for sub in (slow, quick):
            rows = await world.deliveries(subscription_id=sub.id)
            counts[sub.id] = sum(row.status is Status.DELIVERED for row in rows)
        assert counts == {slow.id: 5, quick.id: 50}
        await world.wait(MINUTE)
        assert {row.status for row in await world.deliveries()} == {Status.DELIVERED}

    live(story)


def test_at_a_host_tenants_take_turns_whatever_their_backlogs() -> None:
    async def story(world: World) -> None:
        for n in range(5):
            await world.subscribe(f"https://busy.example/{n}", tenant="greedy")
        await world.subscribe("https://busy.example/other", tenant="other")
        await publish_many(world, 100, "a.b", tenant="greedy")  # 500 deliveries
        waits = []
        for _ in range(10):
            await world.wait(3_700)
            published = world.since_start()
            await world.publish(tenant="other")
            await world.wait(2_500)
            waits.append(world.hits("https://busy.example/other")[-1] - published)
        assert len(world.hits("https://busy.example/other")) == 10
        assert max(waits) <= 2_000
        counts = [len(world.hits(f"https://busy.example/{n}")) for n in range(5)]
        assert max(counts) - min(counts) <= 1  # Endpoints take turns within their tenant.

    live(story, EngineOptions(host_rate_per_second=1))


def test_at_a_host_nothing_is_written_again_either() -> None:
    async def story(world: World) -> None:
        for tenant in ("a", "b"):
            await world.subscribe(f"https://busy.example/{tenant}", tenant=tenant)
            await publish_many(world, 500, "a.b", tenant=tenant)
        await world.settled()
        written = Written(world)
        before = len(world.hits())
        await world.wait(5 * MINUTE)
        assert len(world.hits()) - before in (29, 30)
        assert written.waiting == 0
        a, b = (len(world.hits(f"https://busy.example/{it}")) for it in ("a", "b"))
        assert abs(a - b) <= 1

    live(story, EngineOptions(host_rate_per_second=0.1))


def test_retries_and_first_attempts_take_turns_at_a_rate() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = lambda hit: always(
            500 if hit.at < world.start_ms + 20 * SECOND else 200
        )(hit)
        await world.subscribe(URL, rate_per_second=1)
        await publish_many(world, 300, "a.b")
        await world.wait(4 * MINUTE)
        attempts = [
            one
            for row in (await world.deliveries())[:20]
            for one in await world.views.attempts(row.delivery.id)
        ]
        assert {one.lane for one in attempts} == {Lane.FRESH, Lane.RETRY}
        retried = [one for one in attempts if one.lane is Lane.RETRY]
        assert len(retried) == 20  # Due after 85 s, while first attempts wait all the time.

    live(story)


def test_a_rate_that_is_raised_holds_within_a_minute() -> None:
    async def story(world: World) -> None:
        sub = await world.subscribe(URL, rate_per_second=0.01)
        await world.subscribe(URL, "never")  # The endpoint is shared.
        await publish_many(world, 200, "a.b")
        await world.wait(SECOND)
        await world.engine.change(sub.id, changed(rate_per_second=100))
        await world.wait(MINUTE + 3 * SECOND)
        assert {row.status for row in await world.deliveries()} == {Status.DELIVERED}

    live(story)


def test_a_restart_finds_all_that_waited() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, "slow.*", rate_per_second=2)
        await world.subscribe(URL, "quick.*")
        await publish_many(world, 40, "slow.a")
        await publish_many(world, 40, "quick.a")
        await world.wait(3 * SECOND)
        await world.crash()
        await world.wait(30 * SECOND)
        assert {row.status for row in await world.deliveries()} == {Status.DELIVERED}
        await balanced(world)

    live(story)


def test_what_waits_for_a_rate_can_be_cancelled_and_follows_its_subscription() -> None:
    async def story(world: World) -> None:
        first = await world.subscribe(URL, "a.*", rate_per_second=0.1)
        second = await world.subscribe(URL, "a.*", rate_per_second=0.1)
        await world.subscribe(URL, "a.*", rate_per_second=0.1)
        await publish_many(world, 20, "a.b")
        await world.wait(SECOND)
        other = "https://other.example/"
        await world.engine.unsubscribe(first.id)
        await world.engine.change(second.id, changed(url=other, rate_per_second=None))
        pending = [row for row in await world.deliveries() if row.status is Status.PENDING]
        await world.engine.cancel(pending[-1].delivery.id)
        await world.wait(MINUTE)
        rows = await world.deliveries(subscription_id=first.id)
        assert sum(row.status is Status.CANCELLED for row in rows) == 19
        assert len(world.hits(other)) >= 18
        await world.wait(4 * MINUTE)
        assert Status.PENDING not in {row.status for row in await world.deliveries()}
        await balanced(world)

    live(story)


def test_a_subscription_that_joins_a_url_does_not_wait_for_the_rate_of_another() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, "slow.*", rate_per_second=0.01)
        await publish_many(world, 50, "slow.a")
        await world.wait(SECOND)
        await world.subscribe(URL, "quick.*")
        await world.publish("quick.a")
        await world.wait(SECOND)
        (row,) = [row for row in await world.deliveries() if row.event_type == "quick.a"]
        assert row.status is Status.DELIVERED

    live(story)


def test_what_waits_in_memory_is_bounded_by_the_share_of_its_tenant() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, "slow.*", rate_per_second=0.01)
        await world.subscribe(URL, "quick.*")
        for _ in range(60):
            await world.publish("slow.a", data="x" * 1_000)
            await world.publish("quick.a", data="x" * 1_000)
        await world.wait(SECOND)
        assert world.engine.pulse().memory_bytes <= 16 * 1024
        done = [row for row in await world.deliveries() if row.status is Status.DELIVERED]
        assert sum(row.event_type == "quick.a" for row in done) == 60

    live(story, EngineOptions(ready_bytes_max=32 * 1024))
