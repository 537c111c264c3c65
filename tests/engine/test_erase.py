"""Erasures on virtual time: nothing of what was erased is sent after the response.

Promised: what-homing-promises.md#erasure.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from engine.world import DAY, HOUR, MINUTE, Hit, Reply, World, always, balanced, live
from homing.engine import erase as erasing
from homing.engine.options import EngineOptions
from homing.errors import EventConflict, NotFound, StoreUnavailable
from homing.model import State, Status, Subscription
from homing.policy.payload_fields import PayloadFields
from homing.ports import CleanupStep, ReplayFilter
from homing.ports.erasures import Erasure, ErasureKind
from homing.sim.loop import START_MS, VirtualClock
from homing.store.admin import Admin
from store.build import Maker

URL = "https://receiver.example/hook"
OTHER = "https://other.example/hook"
FIELDS = EngineOptions(payload_fields=PayloadFields(("data.customer",), (b"k" * 16,)))


def hits_of(world: World, key: str) -> list[Hit]:
    """The requests whose body names this event."""
    return [hit for hit in world.sender.hits if f'"{key}"'.encode() in hit.body]


async def done(world: World, erasure: Erasure) -> Erasure:
    for _ in range(100):
        found = await world.engine.erasures.get(erasure.id)
        if found.finished_at is not None:
            return found
        await world.wait(100)
    raise AssertionError("the erasure does not end")


def test_queued_retries_of_an_erased_event_are_not_sent_and_others_are() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        world.sender.scripts[URL] = always(500, excerpt=b"canary")
        for key in ("one", "two"):
            await world.publish(key=key, data={"key": key})
        await world.wait(MINUTE)
        before = len(world.sender.hits)
        erasure = await world.engine.erasures.erase_event("default", "one")
        assert (erasure.events, erasure.deliveries, erasure.cancelled) == (1, 1, 1)
        assert await world.views.event("one", tenant="default") is None
        await world.wait(60 * MINUTE)
        after = world.sender.hits[before:]
        assert after
        assert all(b'"two"' in hit.body for hit in after)
        assert (await done(world, erasure)).finished_at is not None
        await balanced(world)

    live(story)


def test_deliveries_in_memory_of_an_erased_event_are_not_sent() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        world.sender.scripts[URL] = lambda _: Reply(latency_ms=4_000)
        for number in range(40):  # One slot at first: the others wait in memory.
            await world.publish(key=f"k{number}", data={"key": f"k{number}"})
        await world.settled()
        assert world.engine.pulse().ready["fresh"] > 10
        started = {key for key in range(40) if hits_of(world, f"k{key}")}
        for number in range(0, 40, 2):
            await world.engine.erasures.erase_event("default", f"k{number}")
        await world.wait(10 * MINUTE)
        sent = {key for key in range(40) if hits_of(world, f"k{key}")}
        assert sent == started | set(range(1, 40, 2))
        await balanced(world)

    live(story)


def test_an_attempt_in_flight_finishes_and_leaves_nothing() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        world.sender.scripts[URL] = lambda _: Reply(code=500, latency_ms=3_000, excerpt=b"canary")
        await world.publish(key="one")
        await world.settled()
        (row,) = await world.deliveries()
        erasure = await world.engine.erasures.erase_event("default", "one")
        assert erasure.cancelled == 1
        await world.wait(5_000)
        assert len(world.sender.hits) == 1
        assert await world.views.attempts(row.delivery.id) == []
        assert await world.views.delivery(row.delivery.id) is None
        assert all(not it.excerpt for it in world.engine.recent(None, limit=100).attempts)
        (ledger,) = await world.views.ledger(tenant="default")
        assert (ledger.accepted, ledger.cancelled, ledger.pending) == (1, 1, 0)
        endpoint = await world.endpoint(URL)
        assert endpoint.health.failures == 1  # It counts for the endpoint.

    live(story)


def test_an_erasure_waits_for_the_publishes_that_are_being_written() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        world.sender.scripts[URL] = always(500)
        await world.publish(key="first")  # From now on its endpoint is in memory.
        await world.wait(1_000)
        publish = world.flow.publish
        erasing: list[asyncio.Task[Erasure]] = []

        async def slow(*args: Any, **given: Any) -> Any:
            result = await publish(*args, **given)
            if not erasing:
                erase = world.engine.erasures.erase_event("default", "one")
                erasing.append(asyncio.create_task(erase))
                await world.wait(MINUTE)
                assert not erasing[0].done()
            return result

        world.flow.publish = slow  # type: ignore[method-assign]
        await world.publish(key="one", data={"key": "one"})
        assert (await erasing[0]).cancelled == 1
        assert await world.views.event("one", tenant="default") is None
        await world.publish(key="two", data={"key": "two"})
        await world.wait(HOUR)
        assert len(hits_of(world, "one")) <= 1, "no retry"
        assert len(hits_of(world, "two")) > 1

    live(story)


def test_a_probe_that_was_chosen_before_an_erasure_is_not_sent() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        world.sender.scripts[URL] = always(500)
        for number in range(101):
            await world.publish(key=f"k{number}", data={"key": f"k{number}"})
        await world.wait(5 * MINUTE)
        assert (await world.endpoint(URL)).health.state is State.DISABLED
        await world.publish(key="probe", data={"key": "probe"})
        take = world.flow.take_probe
        erased: list[Erasure] = []

        async def slow(*args: Any, **given: Any) -> Any:
            work = await take(*args, **given)
            if work is not None and work.event.key == "probe":
                erased.append(await world.engine.erasures.erase_event("default", "probe"))
            return work

        world.flow.take_probe = slow  # type: ignore[method-assign]
        await world.wait(25 * MINUTE)
        assert erased
        assert not hits_of(world, "probe")

    live(story)


def test_an_erased_id_that_is_published_again_is_a_duplicate_or_a_conflict() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        await world.publish(key="one", data={"key": "one"})
        await world.wait(1_000)
        first = await world.engine.erasures.erase_event("default", "one")
        receipt = await world.publish(key="one", data={"key": "one"})
        assert (receipt.new, receipt.deliveries) == (False, 1)
        with pytest.raises(EventConflict):
            await world.publish(key="one", data={"key": "another"})
        await world.wait(1_000)
        assert len(world.sender.hits) == 1
        await world.crash()
        assert not (await world.publish(key="one", data={"key": "one"})).new
        assert (await world.engine.erasures.erase_event("default", "one")).id == first.id
        with pytest.raises(NotFound):
            await world.engine.erasures.erase_event("default", "never")
        with pytest.raises(NotFound):
            await world.engine.erasures.erase_event("other", "one")

    live(story)


def test_events_are_erased_by_a_payload_field_and_more_says_that_others_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(erasing, "EVENTS_MAX", 10)

    async def story(world: World) -> None:
        await world.subscribe(URL)
        world.sender.scripts[URL] = always(500)
        for number in range(30):
            who = "ada" if number % 2 else "bob"
            await world.publish(key=f"k{number}", data={"customer": who})
        erasures = world.engine.erasures
        first = await erasures.erase_field("default", "data.customer", "ada")
        assert (first.events, first.more) == (10, True)
        second = await erasures.erase_field("default", "data.customer", "ada")
        assert (second.events, second.more) == (5, False)
        none = await erasures.erase_field("default", "data.customer", "ada")
        assert (none.events, none.more) == (0, False)
        before = len(world.sender.hits)
        await world.wait(60 * MINUTE)
        assert not [hit for hit in world.sender.hits[before:] if b"ada" in hit.body]
        assert [hit for hit in world.sender.hits[before:] if b"bob" in hit.body]
        await balanced(world)

    live(story, replace(FIELDS, step_rows=4))


def test_a_tenant_is_erased_while_its_deliveries_wait_and_are_in_flight() -> None:
    async def story(world: World) -> None:
        sub = await world.subscribe(URL, tenant="acme")
        await world.subscribe(OTHER, tenant="neighbour")
        world.sender.scripts[URL] = lambda _: Reply(code=500, latency_ms=3_000)
        for _ in range(30):
            await world.publish(tenant="acme")
            await world.publish(tenant="neighbour")
        await world.settled()
        before = len(world.hits(URL))
        erasure = await world.engine.erasures.erase_tenant("acme")
        assert await world.deliveries(tenant="acme") == []
        assert await world.views.subscription(sub.id) is None
        again = await world.engine.erasures.erase_tenant("acme")
        assert again.id == erasure.id
        found = await done(world, erasure)
        assert (found.events, found.cancelled) == (30, 30)
        await world.wait(120 * MINUTE)
        assert len(world.hits(URL)) == before
        assert len(world.hits(OTHER)) == 30
        await balanced(world)
        # The tenant may begin again.
        await world.subscribe(URL, tenant="acme")
        world.sender.scripts[URL] = always(204)
        await world.publish(tenant="acme")
        await world.wait(1_000)
        assert len(world.hits(URL)) == before + 1

    live(story, EngineOptions(step_rows=7))


def test_endpoints_of_an_erased_tenant_are_counted_no_more() -> None:
    async def story(world: World) -> None:
        sub = await world.subscribe(URL, tenant="acme")
        await world.subscribe(OTHER, tenant="neighbour")
        world.sender.scripts[URL] = always(500)
        for tenant in ("acme", "neighbour"):
            await world.publish(tenant=tenant)
        await world.wait(1_000)
        await world.engine.freeze(sub.endpoint_id, by="test")
        assert world.engine.pulse().endpoints["frozen"] == 1
        await done(world, await world.engine.erasures.erase_tenant("acme"))
        await world.wait(1_000)
        assert world.engine.pulse().endpoints == {"enabled": 1, "disabled": 0, "frozen": 0}
        await world.subscribe(URL, tenant="acme")
        await world.publish(tenant="acme")
        await world.wait(1_000)
        assert world.engine.pulse().endpoints == {"enabled": 2, "disabled": 0, "frozen": 0}

    live(story)


@pytest.mark.parametrize("crash_after", range(9))
def test_an_erasure_that_is_interrupted_at_any_step_goes_on_after_a_restart(
    crash_after: int,
) -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, tenant="acme")
        world.sender.scripts[URL] = always(500)
        for _ in range(12):
            await world.publish(tenant="acme", data={"customer": "ada"})
        await world.wait(1_000)
        left = crash_after

        async def interrupted(name: str, call: Any, *args: Any, **given: Any) -> Any:
            nonlocal left
            if left == 0:
                raise StoreUnavailable
            left -= 1
            return await call(*args, **given)

        for name in ("erasable", "erase_events", "hide_erased", "empty_log", "finish_erasure"):
            call = getattr(world.admin, name)

            def broken(*args: Any, _name: str = name, _call: Any = call, **given: Any) -> Any:
                return interrupted(_name, _call, *args, **given)

            setattr(world.admin, name, broken)
        try:
            await world.engine.erasures.erase_field("acme", "data.customer", "ada")
        except StoreUnavailable:
            assert crash_after < 9
        await world.crash()
        await world.wait(5_000)
        (found,), _ = await world.engine.erasures.page(tenant="acme", before_id=None, limit=5)
        assert found.finished_at is not None
        assert found.events == 12
        assert await world.deliveries(tenant="acme") == []
        before = len(world.sender.hits)
        await world.wait(60 * MINUTE)
        assert len(world.sender.hits) == before
        await balanced(world)

    live(story, replace(FIELDS, step_rows=5))


def test_an_erasure_during_a_replay_job_leaves_no_replay_of_it() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        for number in range(30):
            await world.publish(key=f"k{number}", data={"customer": "ada", "key": f"k{number}"})
        await world.wait(10_000)
        before = len(world.sender.hits)
        job = await world.engine.start_replay(ReplayFilter(tenant="default"))
        await asyncio.sleep(0)
        await world.engine.erasures.erase_field("default", "data.customer", "ada")
        sent = len(world.sender.hits)
        await world.wait(10 * MINUTE)
        assert len(world.sender.hits) == sent
        assert before <= sent <= before + 30
        assert (await world.engine.replay_job(job.id)).state == "done"
        await balanced(world)

    live(story, replace(FIELDS, step_rows=4))


def test_a_neighbour_is_not_disturbed_by_the_erasure_of_a_tenant() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, tenant="acme")
        await world.subscribe(OTHER, tenant="neighbour")
        world.sender.scripts[URL] = lambda _: Reply(code=500)
        for _ in range(200):
            await world.publish(tenant="acme")
        await world.engine.erasures.erase_tenant("acme")
        for _ in range(50):
            at = world.since_start()
            await world.publish(tenant="neighbour")
            await world.settled()
            assert world.hits(OTHER)[-1] - at <= 10
            await world.wait(5)
        await balanced(world)

    live(story, EngineOptions(step_rows=10))


@pytest.mark.parametrize("kind", ["field", "tenant"])
def test_what_was_accepted_under_a_clock_that_was_ahead_is_erased_too(kind: str) -> None:
    async def story(world: World) -> None:
        right = world.clock
        ahead = VirtualClock(asyncio.get_running_loop(), start_ms=START_MS + DAY)
        world.clock = world.sender._clock = ahead
        await world.crash()
        await world.subscribe(URL)
        world.sender.scripts[URL] = always(500)
        await world.publish(key="one", data={"customer": "ada"})
        await world.wait(MINUTE)
        world.clock = world.sender._clock = right
        await world.crash()
        before, erasures = len(world.sender.hits), world.engine.erasures
        if kind == "field":
            erasure = await erasures.erase_field("default", "data.customer", "ada")
        else:
            erasure = await erasures.erase_tenant("default")
        assert (await done(world, erasure)).events == 1
        await world.wait(2 * DAY)
        assert len(world.sender.hits) == before
        assert await world.deliveries() == []

    live(story, FIELDS)


def test_an_erasure_where_more_endpoints_are_in_memory_than_may_be() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, "first")
        await world.subscribe(OTHER, "second")
        world.sender.scripts[OTHER] = lambda _: Reply(latency_ms=1_000)
        await world.publish("first", key="one")
        await world.settled()
        await world.publish("second", key="two")  # There is one endpoint too many now.
        await world.settled()
        erasure = await world.engine.erasures.erase_event("default", "one")
        assert (erasure.events, erasure.deliveries) == (1, 1)
        await world.wait(MINUTE)
        assert [it.status for it in await world.deliveries()] == [Status.DELIVERED]

    live(story, EngineOptions(queues_max=1))


def test_what_cannot_be_removed_yet_is_tried_again_ever_more_rarely_and_delays_no_other() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, tenant="acme")
        await world.publish(tenant="acme")
        await world.publish(key="one")
        await world.written()
        remove, tries = world.admin.erase_rest_of_tenant, list[int]()

        async def in_use(erasure: Erasure, *, limit: int) -> CleanupStep:
            tries.append(world.clock.now())
            if world.since_start() < 60 * MINUTE:
                return CleanupStep(touched=0, done=False)
            return await remove(erasure, limit=limit)

        world.admin.erase_rest_of_tenant = in_use  # type: ignore[method-assign]
        stuck = await world.engine.erasures.erase_tenant("acme")
        await world.wait(30 * MINUTE)
        other = await world.engine.erasures.erase_event("default", "one")
        await done(world, other)
        await world.wait(30 * MINUTE)
        assert len(tries) < 70
        await world.wait(MINUTE)
        assert (await world.engine.erasures.get(stuck.id)).finished_at is not None

    live(story)


def test_what_a_tenant_makes_right_after_its_erasure_lives_on_every_process() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, tenant="acme")
        await world.publish(tenant="acme", key="old")
        await done(world, await world.engine.erasures.erase_tenant("acme"))
        await world.subscribe(URL, tenant="acme")
        world.sender.scripts[URL] = always(500)
        await world.publish(tenant="acme", key="new", data={"key": "new"})
        await world.settled()
        await world.crash()  # The next process reads everything for the first time.
        world.sender.scripts[URL] = always(204)
        await world.publish(tenant="acme", key="newer", data={"key": "newer"})
        await world.wait(10 * MINUTE)
        found = await world.deliveries(tenant="acme")
        assert [it.status for it in found] == [Status.DELIVERED] * 2
        assert {it.event_key for it in found} == {"new", "newer"}

    live(story)


@pytest.mark.parametrize("kind", ["field", "tenant"])
def test_what_is_accepted_after_the_answer_lives_and_is_the_same_event_again(kind: str) -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, tenant="acme")
        await world.publish(tenant="acme", key="old", data={"customer": "ada"})
        erasures = world.engine.erasures
        if kind == "field":
            erasure = await erasures.erase_field("acme", "data.customer", "ada")
        else:
            erasure = await erasures.erase_tenant("acme")
        first = await world.publish(tenant="acme", key="new", data={"customer": "ada"})
        assert first.new
        assert await world.views.event("new", tenant="acme") is not None
        await done(world, erasure)
        await world.crash()
        again = await world.publish(tenant="acme", key="new", data={"customer": "ada"})
        assert (again.new, again.deliveries) == (False, first.deliveries)
        event = await world.views.event("new", tenant="acme")
        assert event is not None
        await world.wait(1_000)
        sent = [it.event_key for it in await world.deliveries(tenant="acme")]
        assert sent == (["new"] if kind == "field" else [])

    live(story, FIELDS)


def test_a_tenant_that_is_erased_again_meanwhile_loses_what_came_in_between() -> None:
    async def story(world: World) -> None:
        for number in range(20):
            await world.publish(tenant="acme", key=f"k{number}")
        first = await world.engine.erasures.erase_tenant("acme")
        await world.publish(tenant="acme", key="between")
        again = await world.engine.erasures.erase_tenant("acme")
        await world.publish(tenant="acme", key="after")
        assert await world.views.event("between", tenant="acme") is None
        assert await world.views.event("after", tenant="acme") is not None
        assert (await done(world, again)).finished_at is not None
        assert (await done(world, first)).finished_at is not None
        page, _ = await world.views.events(tenant="acme", event_type=None, before_id=None, limit=9)
        assert [it.event.key for it in page] == ["after"]
        await balanced(world)

    live(story, EngineOptions(step_rows=3))


def test_an_erasure_between_two_reads_of_the_catalog_is_not_missed() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, tenant="acme")
        await world.publish(tenant="acme", key="one")
        read, other = world.admin.subscriptions_since, Admin(world.db)
        make = Maker(now=world.clock.now())
        endpoint = make.endpoint(OTHER, tenant="neighbour")

        async def late(version: int, **page: int) -> list[Subscription]:
            """Before they are read, another process erases, and changes a subscription."""
            world.admin.subscriptions_since = read  # type: ignore[method-assign]
            new = Erasure(make.id(), "acme", ErasureKind.EVENT, "", b"h", world.clock.now())
            begun = await other.begin_erasure(new, key="one", earlier=[])
            erased = await other.hide_erased(begun.id, more=False)
            made = await other.create_subscription(make.subscription(endpoint), endpoint=endpoint)
            assert made.version > erased
            return await read(version, **page)

        world.admin.subscriptions_since = late  # type: ignore[method-assign]
        await world.subscribe(OTHER, tenant="third")
        catalog = world.engine._core.catalog
        await catalog.refresh()
        (erasure,) = await world.admin.running_erasures(limit=9)
        assert catalog.erased("acme") == erasure.version

    live(story)
