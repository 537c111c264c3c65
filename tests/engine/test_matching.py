"""Filters that take long delay no other publish, and miss no subscription meanwhile.

Promised: what-homing-promises.md#matching.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import msgspec
import pytest

from engine.world import SECOND, World, changed, live
from homing.engine.publish import PublishResult
from homing.errors import ShuttingDown, TooMany
from homing.model import Workfront
from homing.policy.admission import EventDraft
from homing.policy.filters_values import read_moment

URL = "https://receiver.example/hook"
OTHER = "https://other.example/hook"
SAME_DAY = "2026-03-01T00:00:00Z"


def spellings(count: int) -> list[str]:
    """So many texts that all mean the same moment."""
    return [
        f"2026-03-01T{number // 60 % 24:02d}:{number % 60:02d}:00.{'0' * (1 + number // 1440)}"
        f"+{number // 60 % 24:02d}:{number % 60:02d}"
        for number in range(count)
    ]


def only(values: int, times: int = 1) -> str:
    """A filter: each item must be one of these values."""
    one = {"field": "data.at", "op": "containsOnly", "value": [SAME_DAY] * values}
    return json.dumps([one] * times)


def objects(count: int, wanted: int) -> str:
    return json.dumps(
        [{"field": "data.list", "op": "notContains", "value": {"a": 1, "b": wanted}}] * count
    )


def draft(data: Any, *, tenant: str = "default", key: str | None = None) -> EventDraft:
    return EventDraft(tenant=tenant, type="a.b", data=json.dumps(data).encode(), key=key)


LONG = {"list": [{"a": 1, "b": number} for number in range(2_000)]}  # with 20 objects: 40 slices


def test_a_neighbour_is_answered_before_an_expensive_match_ends() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, filters=objects(20, -1))
        await world.subscribe(OTHER, tenant="neighbour")
        responded: list[str] = []

        async def publish(name: str, data: Any, tenant: str) -> None:
            (receipt,) = await world.engine.publish([draft(data, tenant=tenant)])
            assert receipt.deliveries == 1
            responded.append(name)

        first = asyncio.ensure_future(publish("expensive", LONG, "default"))
        await asyncio.sleep(0)
        for number in range(3):
            await publish(f"neighbour {number}", {}, "neighbour")
        await first
        assert responded == ["neighbour 0", "neighbour 1", "neighbour 2", "expensive"]

    live(story)


def calls_of(world: World, drafts: list[EventDraft]) -> Any:
    """The number of Python calls that it takes to publish these events."""

    async def count() -> int:
        calls = 0

        def seen(_frame: Any, event: str, _arg: Any) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(seen)
        try:
            await world.engine.publish(drafts)
        finally:
            sys.setprofile(None)
        return calls

    return count()


def test_twice_the_items_and_twice_the_values_take_twice_the_steps() -> None:
    async def story(world: World) -> None:
        counts = []
        for number, size in enumerate((50, 100)):
            tenant = f"t{number}"
            await world.subscribe(URL, filters=only(size), tenant=tenant)
            event = draft({"at": spellings(size * 10)}, tenant=tenant)
            counts.append(await calls_of(world, [event]))
        assert counts[1] < 2.5 * counts[0]

    live(story)


def test_dates_of_an_event_are_read_once_for_all_who_ask(monkeypatch: Any) -> None:
    reads: list[str] = []

    def counted(text: str) -> int | None:
        reads.append(text)
        return read_moment(text)

    monkeypatch.setattr("homing.policy.filters_reading.read_moment", counted)

    async def story(world: World) -> None:
        for number in range(3):
            await world.subscribe(f"{URL}/{number}", filters=only(20, times=20))
        receipt = await world.publish(data={"at": spellings(500)})
        assert receipt.deliveries == 3
        assert len(reads) == 500

    live(story)


def test_a_subscription_that_is_created_meanwhile_is_not_missed() -> None:
    async def story(world: World) -> None:
        gone = await world.subscribe(f"{URL}/gone", filters=objects(20, -1))
        other = await world.subscribe(f"{URL}/changed", filters=objects(20, -1))
        await world.subscribe(f"{URL}/stays", filters=objects(20, -1))
        publishing = asyncio.ensure_future(world.engine.publish([draft(LONG)]))
        for _ in range(10):
            await asyncio.sleep(0)
        await world.subscribe(f"{URL}/new")
        await world.subscribe(f"{URL}/picky", filters=objects(1, 1_999))
        await world.engine.unsubscribe(gone.id)
        await world.engine.change(other.id, changed(filters=objects(1, 0)))
        assert not publishing.done()
        (receipt,) = await publishing
        assert receipt.deliveries == 2
        await world.wait(SECOND)
        assert {hit.url for hit in world.sender.hits} == {f"{URL}/stays", f"{URL}/new"}

    live(story)


def test_a_tenant_that_changes_all_the_time_holds_up_nobody_else() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, filters=objects(20, -1))
        going = True

        async def churn() -> None:
            while going:
                made = await world.subscribe(OTHER, tenant="restless")
                await world.engine.unsubscribe(made.id)

        churning = asyncio.ensure_future(churn())
        (receipt,) = await world.engine.publish([draft(LONG)])
        batch = [draft({"n": number}) for number in range(1_000)]
        assert len(await world.engine.publish(batch)) == 1_000
        going = False
        await churning
        assert receipt.deliveries == 1

    live(story)


def test_a_batch_is_whole_and_in_its_order_whatever_its_events_cost() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, filters=objects(2, -1))
        batch = [draft(LONG if number % 10 == 5 else {}, key=f"{number}") for number in range(40)]
        responded: list[str] = []

        async def neighbour() -> None:
            await world.publish(tenant="neighbour")
            responded.append("neighbour")

        waits = asyncio.ensure_future(neighbour())
        receipts = await world.engine.publish(batch)
        responded.append("batch")
        await waits
        assert responded == ["neighbour", "batch"]
        assert [it.key for it in receipts] == [f"{number}" for number in range(40)]
        assert all(it.deliveries == 1 for it in receipts)
        await world.wait(SECOND)
        seen = [msgspec.json.decode(hit.body)["id"] for hit in world.sender.hits]
        assert seen == [f"{number}" for number in range(40)]

    live(story)


def test_first_attempts_start_in_order_of_acceptance_across_slices() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, filters=objects(20, -1))
        accepted: list[str] = []

        async def publish(number: int) -> None:
            data = LONG if number % 3 == 0 else {"n": number}
            (receipt,) = await world.engine.publish([draft(data, key=f"{number}")])
            accepted.append(receipt.key)

        await asyncio.gather(*(publish(number) for number in range(12)))
        await world.wait(SECOND)
        ids = [hit.delivery for hit in world.sender.hits]
        assert len(ids) == 12
        assert ids == sorted(ids)
        assert [msgspec.json.decode(hit.body)["id"] for hit in world.sender.hits] == accepted

    live(story)


def test_tenants_take_turns_at_what_is_expensive() -> None:
    async def story(world: World) -> None:
        for tenant in ("many", "one"):
            await world.subscribe(URL, tenant=tenant, filters=objects(5, -1))
        responded: list[str] = []

        async def publish(tenant: str) -> None:
            await world.engine.publish([draft(LONG, tenant=tenant)])
            responded.append(tenant)

        await asyncio.gather(*(publish(it) for it in ["many"] * 5 + ["one"]))
        assert responded.index("one") <= 1

    live(story)


def test_filters_beyond_the_limit_that_are_stored_go_on_working() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, filters=only(100, times=12))
        assert (await world.publish(data={"at": spellings(1_000)})).deliveries == 1
        assert (await world.publish(data={"at": [*spellings(1_000), "x"]})).deliveries == 0
        await world.crash()
        assert (await world.publish(data={"at": spellings(1_000)})).deliveries == 1

    live(story)


def test_an_old_version_that_ends_while_it_is_matched_gets_nothing() -> None:
    async def story(world: World) -> None:
        own = Workfront(until=world.clock.now() + SECOND)
        await world.subscribe(URL, filters=objects(5, -1), workfront=own)
        await world.subscribe(OTHER, filters=objects(5, -1), workfront=Workfront(version="v1"))
        assert (await world.publish(data=LONG)).deliveries == 2
        await world.wait(SECOND)
        assert (await world.publish(data=LONG)).deliveries == 1

    live(story)


def test_what_is_being_matched_when_the_server_stops_is_refused() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, filters=objects(20, -1))
        told: list[PublishResult] = []
        world.engine._publisher.publish_then([draft(LONG)], told.append)
        for _ in range(5):
            await asyncio.sleep(0)
        assert told == []
        await world.engine._publisher.drain()
        assert [type(it) for it in told] == [ShuttingDown]

    live(story)


def test_what_waits_to_be_matched_is_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr("homing.engine.matching.TENANT_EVENTS_MAX", 3)

    async def story(world: World) -> None:
        for tenant in ("default", "neighbour"):
            await world.subscribe(URL, tenant=tenant, filters=objects(1, -1))
        waiting = [draft(LONG) for _ in range(5)] + [draft(LONG, tenant="neighbour")]
        ended = await asyncio.gather(
            *(world.engine.publish([it]) for it in waiting), return_exceptions=True
        )
        assert [isinstance(it, TooMany) for it in ended] == [False] * 3 + [True] * 2 + [False]
        assert (await world.engine.publish([draft(LONG)]))[0].new

    live(story)


@pytest.mark.parametrize("drafts", [1, 200])
def test_where_nobody_filters_and_where_filters_are_cheap_nothing_is_put_off(drafts: int) -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        await world.engine.publish([draft({"n": number}) for number in range(drafts)])
        cheap = json.dumps([{"field": "data.n", "op": "gt", "value": 5}])
        await world.subscribe(OTHER, filters=cheap)
        await world.publish(data={"n": 6})
        assert world.engine._publisher._matcher.slices == 0

    live(story)
