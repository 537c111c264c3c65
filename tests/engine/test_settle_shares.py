"""Commits of outcomes are bounded, and no tenant's outcomes delay those of another."""

from __future__ import annotations

import asyncio

from engine.world import SECOND, Reply, World, always, balanced, failing_with, live
from homing.model import Failure
from homing.policy.admission import EventDraft
from homing.ports import SettleBatch, SettleResult

URLS = 500
FAILURES_MAX = 250
COST_MAX = 1_000


def settles_seen(world: World) -> list[SettleBatch]:
    """A list to which every batch at the store is appended from now on."""
    seen: list[SettleBatch] = []
    real = world.flow.settle

    async def settle(batch: SettleBatch) -> SettleResult:
        seen.append(batch)
        return await real(batch)

    world.flow.settle = settle  # type: ignore[method-assign]
    return seen


async def refusing_urls(world: World, count: int, *, tenant: str) -> None:
    for number in range(count):
        url = f"https://dead.example/{tenant}/{number}"
        world.sender.scripts[url] = failing_with(Failure.REFUSED)
        await world.subscribe(url, "dead", tenant=tenant)


async def publish_many(world: World, count: int, *, tenant: str) -> None:
    drafts = [EventDraft(tenant=tenant, type="dead", data=b"1", key=None) for _ in range(count)]
    await world.engine.publish(drafts)


def test_a_commit_of_outcomes_is_bounded_however_many_finish_at_once() -> None:
    async def story(world: World) -> None:
        seen = settles_seen(world)
        await refusing_urls(world, URLS, tenant="a")
        await publish_many(world, 2, tenant="a")
        await world.wait(SECOND)
        assert sum(len(batch.attempts) for batch in seen) == 2 * URLS
        assert max(len(batch.attempts) for batch in seen) <= FAILURES_MAX
        await balanced(world)

    live(story)


def test_an_outcome_does_not_wait_behind_thousands_of_another_tenant() -> None:
    """Many outcomes wait for a store that did not reply; then one of another tenant comes."""

    async def story(world: World) -> None:
        await world.subscribe("https://big.example/", "dead", tenant="a")
        await world.subscribe("https://small.example/", "dead", tenant="b")
        released, real = asyncio.Event(), world.flow.settle
        seen: list[SettleBatch] = []

        async def settle(batch: SettleBatch) -> SettleResult:
            await released.wait()
            seen.append(batch)
            return await real(batch)

        world.flow.settle = settle  # type: ignore[method-assign]
        await publish_many(world, 3_000, tenant="a")
        await world.wait(SECOND)
        await publish_many(world, 1, tenant="b")
        await world.wait(SECOND)
        released.set()
        await world.wait(SECOND)
        before = 0
        for batch in seen:
            if "b" in {it.delivery.tenant for it in batch.finished}:
                break
            before += len(batch.attempts)
        assert sum(len(batch.attempts) for batch in seen) == 3_001
        assert before <= COST_MAX, "the commit that was under way"
        await balanced(world)

    live(story)


def test_a_tenant_whose_urls_all_refuse_makes_few_attempts_while_another_is_at_work() -> None:
    """Without other tenants it makes all attempts at once."""

    async def story(world: World) -> None:
        await refusing_urls(world, URLS, tenant="a")
        await world.subscribe("https://well.example/", "dead", tenant="b")
        await publish_many(world, 1, tenant="b")
        await publish_many(world, 4, tenant="a")
        for _ in range(50):  # one second
            await publish_many(world, 1, tenant="b")
            await world.wait(20)
        hits = world.sender.hits
        well = sum("well" in hit.url for hit in hits)
        dead = len(hits) - well
        assert well >= 50, "the last may be under way"
        assert 200 <= dead <= 512 + 500
        await world.wait(60 * SECOND)  # The other has nothing more: the rest goes at once.
        assert sum("dead" in hit.url for hit in world.sender.hits) == 4 * URLS
        await balanced(world)

    live(story)


def test_healthy_urls_of_a_tenant_do_not_wait_for_its_refusing_ones() -> None:
    async def story(world: World) -> None:
        await refusing_urls(world, 200, tenant="a")
        await world.subscribe("https://well.example/a", "well", tenant="a")
        await world.subscribe("https://well.example/b", "well", tenant="b")
        await publish_many(world, 5, tenant="a")
        for _ in range(30):
            await world.publish("well", tenant="a")
            await world.publish("well", tenant="b")
            await world.wait(20)
        assert len(world.hits("https://well.example/a")) == 30
        assert len(world.sender.hits) < 1_000, "the refusing ones are still at it"

    live(story)


def test_outcomes_of_one_endpoint_count_in_the_order_in_which_they_finished() -> None:
    """A success after a failure is not written before it, whichever other tenants are active."""

    async def story(world: World) -> None:
        seen = settles_seen(world)
        replies = iter([Reply(code=500), *[Reply(code=200)] * 30])
        world.sender.scripts["https://one.example/"] = lambda _: next(replies)
        await refusing_urls(world, 100, tenant="a")
        await world.subscribe("https://one.example/", "one", tenant="a")
        await world.subscribe("https://well.example/", "dead", tenant="b")
        world.sender.scripts["https://well.example/"] = always(200)
        for number in range(20):
            await publish_many(world, 1, tenant="a")
            await publish_many(world, 1, tenant="b")
            await world.publish("one", tenant="a")
            await world.wait(5 if number else 100)
        await world.wait(60 * SECOND)
        one = await world.endpoint("https://one.example/")
        ends = [
            it.finished_at for batch in seen for it in batch.attempts if it.endpoint_id == one.id
        ]
        assert len(ends) == 20
        assert ends == sorted(ends)

    live(story)
