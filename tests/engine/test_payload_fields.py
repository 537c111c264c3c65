"""Payload fields are indexed in the commit of a publish, by whatever way the event came."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from engine.world import World, live
from homing.engine import publish as publish_module
from homing.engine.options import EngineOptions
from homing.policy import payload_fields
from homing.policy.admission import EventDraft
from homing.policy.payload_fields import PayloadFields
from store.scene import count

FIELDS = PayloadFields(("data.id", "data.deep.id"), (b"k" * 32,))
OPTIONS = EngineOptions(payload_fields=FIELDS)
LONG = {"rest": [{"a": 1}] * 60_000}  # many slices


def draft(data: Any, *, key: str, tenant: str = "default") -> EventDraft:
    return EventDraft(tenant=tenant, type="a.b", data=json.dumps(data).encode(), key=key)


async def found(world: World, value: str, *, path: str = "data.id") -> list[str]:
    """The ids of the events with this value, oldest first."""
    events = await world.views.events_by_field(FIELDS.wanted(path, value), tenant=None, limit=50)
    return [it.key for it in reversed(events)]


def test_the_fields_of_an_event_and_of_a_batch_are_found() -> None:
    async def story(world: World) -> None:
        await world.engine.publish([draft({"id": 7, "deep": {"id": "x"}}, key="one")])
        await world.engine.publish([draft({"id": 7, "n": n}, key=f"b{n}") for n in range(3)])
        await world.engine.publish([draft({"id": None}, key="none"), draft([7], key="list")])
        assert await found(world, "7") == ["one", "b0", "b1", "b2"]
        assert await found(world, "x", path="data.deep.id") == ["one"]
        assert await count(world.db, "event_field") == 5

    live(story, OPTIONS)


def test_long_data_is_read_in_slices_and_delays_no_neighbour() -> None:
    async def story(world: World) -> None:
        responded: list[str] = []

        async def publish(one: EventDraft) -> None:
            await world.engine.publish([one])
            responded.append(one.key or "")

        long = asyncio.ensure_future(publish(draft({**LONG, "id": 7}, key="long")))
        await asyncio.sleep(0)
        for number in range(3):
            await publish(draft({"id": 7}, key=f"n{number}", tenant="neighbour"))
        await long
        assert responded == ["n0", "n1", "n2", "long"]
        assert await found(world, "7") == ["n0", "n1", "n2", "long"]

    live(story, OPTIONS)


def test_a_large_batch_is_read_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once: list[int] = []
    seen = PayloadFields.at_once

    def noted(self: PayloadFields, data: bytes) -> tuple[bytes, ...]:
        at_once.append(len(data))
        return seen(self, data)

    monkeypatch.setattr(PayloadFields, "at_once", noted)

    async def story(world: World) -> None:
        drafts = [draft({"id": 7, "rest": "x" * 2_000}, key=f"k{n}") for n in range(200)]
        await world.engine.publish(drafts)
        assert at_once == []
        assert len(await found(world, "7")) == 50
        assert await count(world.db, "event_field") == 200

    live(story, OPTIONS)


def test_a_publish_that_is_matched_again_keeps_its_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        await world.subscribe("https://a.example/", filters='[{"field":"data.id","op":"exists"}]')
        publishing = asyncio.ensure_future(
            world.engine.publish([draft({**LONG, "id": 7}, key="long")])
        )
        for _ in range(5):
            await asyncio.sleep(0)
        await world.subscribe("https://b.example/")
        (receipt,) = await publishing
        assert receipt.deliveries == 2
        assert await found(world, "7") == ["long"]

    live(story, OPTIONS)


def test_a_notice_has_fields_too() -> None:
    fields = PayloadFields(("data.state",), (b"k" * 32,))

    async def story(world: World) -> None:
        sub = await world.subscribe("https://a.example/")
        await world.engine.freeze(sub.endpoint_id, by="ada")
        events = await world.views.events_by_field(
            fields.wanted("data.state", "frozen"), tenant=None, limit=5
        )
        assert [it.type for it in events] == ["homing.endpoint.frozen"]

    live(story, EngineOptions(payload_fields=fields))


def test_without_fields_no_data_is_read_and_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> Any:
        raise AssertionError("data was read")

    monkeypatch.setattr(payload_fields, "read_data", refuse)
    monkeypatch.setattr(PayloadFields, "steps", refuse)
    monkeypatch.setattr(publish_module.Publisher, "_steps_with_data", refuse)

    async def story(world: World) -> None:
        await world.engine.publish([draft({"id": n}, key=f"k{n}") for n in range(9)])
        await world.engine.publish([draft({**LONG, "id": 7}, key="long")])
        assert await count(world.db, "event_field") == 0

    live(story)
