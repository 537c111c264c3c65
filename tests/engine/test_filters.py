"""Filters in the engine: only matches become deliveries, and a change of filters loses none."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec

from engine.world import World, changed, live
from homing.model import Format, Workfront
from homing.policy.filters_run import read_data

URL = "https://receiver.example/hook"
OTHER = "https://other.example/hook"


def over(amount: int) -> str:
    return json.dumps([{"field": "data.amount", "op": "gt", "value": amount}])


def test_only_what_matches_becomes_a_delivery() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, filters=over(100))
        assert (await world.publish(data={"amount": 100})).deliveries == 0
        assert (await world.publish(data={"amount": 101})).deliveries == 1
        await world.subscribe(OTHER)
        assert (await world.publish(data={"amount": 1})).deliveries == 1
        assert (await world.publish(data="text")).deliveries == 1
        await world.wait(1000)
        assert len(world.hits(URL)) == 1

    live(story)


def test_filters_hold_after_a_restart_and_go_with_their_subscription() -> None:
    async def story(world: World) -> None:
        one = await world.subscribe(URL, filters=over(100))
        await world.crash()
        assert (await world.publish(data={"amount": 1})).deliveries == 0
        await world.engine.change(one.id, changed(filters="[]"))
        assert (await world.publish(data={"amount": 1})).deliveries == 1
        await world.engine.change(one.id, changed(filters=over(5)))
        assert (await world.publish(data={"amount": 1})).deliveries == 0
        await world.engine.unsubscribe(one.id)
        assert world.engine._core.catalog._wants == {}

    live(story)


def test_a_change_of_filters_loses_nothing_and_doubles_nothing() -> None:
    """An event is matched by one of the versions; after the response, by the new version."""

    async def story(world: World) -> None:
        one = await world.subscribe(URL, filters=over(0))
        responded = 0  # the limit whose change was answered last
        seen: list[tuple[int, int, int]] = []

        async def publish(number: int) -> None:
            known = responded
            receipt = await world.publish(data={"amount": number % 10}, key=f"e{number}")
            seen.append((number, known, receipt.deliveries))

        async def change() -> None:
            nonlocal responded
            for limit in (3, 7):
                await world.engine.change(one.id, changed(filters=over(limit)))
                responded = limit

        tasks = [asyncio.create_task(publish(number)) for number in range(50)]
        tasks.append(asyncio.create_task(change()))
        await asyncio.gather(*tasks)
        await asyncio.gather(*(publish(number) for number in range(50, 100)))
        for number, known, made in seen:
            limits = [limit for limit in (0, 3, 7) if limit >= known]
            assert made in {int(number % 10 > limit) for limit in limits}
        await world.wait(1000)
        assert len(world.hits(URL)) == sum(made for _, _, made in seen)
        assert len({hit.headers["webhook-id"] for hit in world.sender.hits}) == len(world.hits(URL))

    live(story)


def test_data_is_read_once_and_only_when_somebody_filters(monkeypatch: Any) -> None:
    reads: list[bytes] = []

    def counted(data: bytes) -> Any:
        reads.append(data)
        return read_data(data)

    monkeypatch.setattr("homing.policy.wants.read_data", counted)

    async def story(world: World) -> None:
        for number in range(3):
            await world.subscribe(f"{URL}/{number}")
        await world.publish()
        assert reads == []
        for number in range(3):
            await world.subscribe(f"{OTHER}/{number}", "order.*", filters=over(number))
        await world.publish("a.b")
        assert reads == []
        await world.publish("order.paid", data={"amount": 2})
        assert len(reads) == 1

    live(story)


def test_an_object_and_a_version_of_the_workfront_door_are_looked_at() -> None:
    filters = '[{"fieldName":"sizes","fieldValue":"S"}]'

    async def story(world: World) -> None:
        for own in (Workfront(object_id="5e7"), Workfront(version="v1", object_id="5e7")):
            await world.subscribe(
                f"{URL}/{own.version}",
                "PROJ.UPDATE",
                format=Format.WORKFRONT,
                filters=filters,
                workfront=own,
            )
        new = {"ID": "5e7", "sizes": ["S"]}
        await world.publish("PROJ.UPDATE", data={"newState": new, "oldState": {}})
        await world.publish("PROJ.UPDATE", data={"newState": {}, "oldState": new})
        await world.publish("PROJ.UPDATE", data={"newState": {**new, "ID": "other"}})
        await world.wait(1000)
        assert world.hits(f"{URL}/v2") == []
        (hit,) = world.sender.hits
        assert msgspec.json.decode(hit.body)["newState"] == {"ID": "5e7", "sizes": "S"}

    live(story)
