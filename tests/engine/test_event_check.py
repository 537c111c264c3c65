"""The check of events against their types: what is kept in memory, and what a change does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.world import World, live
from homing.engine import event_check
from homing.engine.event_check import FairCache
from homing.engine.options import EngineOptions
from homing.errors import Invalid
from homing.policy.admission import EventDraft
from homing.policy.event_check_rules import Check, CheckRules, Unknown
from homing.policy.event_types import EventType

NUMBERS = '{"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}'


def draft(data: Any = None, *, tenant: str = "acme", type: str = "a.b") -> EventDraft:  # noqa: A002
    return EventDraft(tenant, type, json.dumps({"id": 1} if data is None else data).encode())


def described(**more: Any) -> EventType:
    given = {"tenant": "acme", "name": "a.b", "schema": NUMBERS, "check": Check.REFUSE, **more}
    return EventType(**given)


def test_without_types_nothing_is_checked() -> None:
    async def story(world: World) -> None:
        check = world.engine.event_check
        assert not check.is_on
        await world.engine.event_types.create(described())
        assert check.is_on
        await world.engine.event_types.delete("acme", "a.b")
        assert not check.is_on

    live(story)


def test_an_event_passes_at_once_when_its_schema_is_in_memory() -> None:
    async def story(world: World) -> None:
        await world.engine.event_types.create(described())
        check = world.engine.event_check
        assert not check.passes([draft()])
        assert await check.check([draft()]) == [draft()]
        assert check.passes([draft()])
        assert check.passes([draft(tenant="other"), draft(type="a.c")])
        assert not check.passes([draft({"id": "x"})])
        with pytest.raises(Invalid) as caught:
            await check.check([draft(), draft({"id": "x"}), draft({})])
        assert [it.field for it in caught.value.problems] == ["events[1].data", "events[2].data"]
        assert "at /id, " in caught.value.problems[0].reason
        assert check.results == {"valid": 3, "refused": 2}

    live(story)


def test_a_change_counts_from_the_next_event_on() -> None:
    async def story(world: World) -> None:
        types, check = world.engine.event_types, world.engine.event_check
        await types.create(described())
        await check.check([draft()])

        async def warns(it: EventType) -> EventType:
            return described(version=it.version, check=Check.WARN)

        async def is_off(it: EventType) -> EventType:
            return described(version=it.version, check=Check.OFF)

        await types.change("acme", "a.b", warns)
        assert not check.passes([draft()])
        warned = await check.check([draft({"id": "x"})])
        assert warned[0].warning.startswith("data does not match its schema: at /id, ")
        await types.change("acme", "a.b", is_off)
        assert await check.check([draft({"id": "x"})]) == [draft({"id": "x"})]
        assert check.passes([draft({"id": "x"})])

    live(story)


def test_the_check_of_a_type_is_its_own_or_that_of_its_tenant() -> None:
    options = EngineOptions(
        checks=CheckRules(Check.OFF),
        tenant_checks={"acme": CheckRules(Check.REFUSE), "bolt": CheckRules(Check.WARN)},
    )

    async def story(world: World) -> None:
        check = world.engine.event_check
        for tenant in ("acme", "bolt", "other"):
            await world.engine.event_types.create(described(tenant=tenant, check=None))
        wrong = {"id": "x"}
        with pytest.raises(Invalid):
            await check.check([draft(wrong)])
        assert (await check.check([draft(wrong, tenant="bolt")]))[0].warning
        assert not (await check.check([draft(wrong, tenant="other")]))[0].warning

    live(story, options)


def test_unknown_types_are_refused_where_the_settings_say_so() -> None:
    options = EngineOptions(
        checks=CheckRules(unknown=Unknown.REFUSE),
        tenant_checks={"free": CheckRules(unknown=Unknown.ALLOW)},
    )

    async def story(world: World) -> None:
        check = world.engine.event_check
        assert check.is_on
        assert not check.passes([draft()])
        with pytest.raises(Invalid) as caught:
            await check.check([draft()])
        assert [it.field for it in caught.value.problems] == ["events[0].type"]
        assert check.passes([draft(tenant="free")])
        await world.engine.event_types.create(described(schema=""))
        assert await check.check([draft()]) == [draft()]
        assert check.passes([draft()])

    live(story, options)


def test_a_large_batch_lets_the_event_loop_run_in_between() -> None:
    async def story(world: World) -> None:
        await world.engine.event_types.create(described())
        large = draft({"id": 1, "more": list(range(3_000))})
        checked = await world.engine.event_check.check([large] * 50)
        assert len(checked) == 50
        assert world.engine.event_check.results["valid"] == 50

    live(story)


def test_one_tenant_with_many_schemas_does_not_push_out_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_check, "SCHEMA_BYTES_KEPT", 5 * event_check.SCHEMA_BYTES_LEAST)

    async def story(world: World) -> None:
        types, check = world.engine.event_types, world.engine.event_check
        await types.create(described(tenant="small"))
        await check.check([draft(tenant="small")])
        for number in range(8):
            name = f"t{number}"
            await types.create(described(name=name))
            await check.check([draft(type=name)])
        assert check.passes([draft(tenant="small")])
        assert check.passes([draft(type="t7")])
        assert not check.passes([draft(type="t0")])

    live(story)


def test_a_cache_never_holds_more_than_its_weight() -> None:
    cache: FairCache[int, str] = FairCache(10)
    for number in range(100):
        cache.put("greedy", number, "x", 3)
        cache.put("modest", 1, "y", 2)
        assert cache.weight <= 10
    assert cache.get("modest", 1) == "y"
    assert cache.get("greedy", 99) == "x"
    assert cache.get("greedy", 0) is None
    cache.put("greedy", 1, "huge", 11)
    assert cache.get("greedy", 1) is None
    assert cache.weight <= 10


def test_a_schema_that_this_release_does_not_accept_is_not_checked() -> None:
    async def story(world: World) -> None:
        await world.engine.event_types.create(described(schema='{"type": "nonsense"}'))
        assert await world.engine.event_check.check([draft({"id": "x"})]) == [draft({"id": "x"})]

    live(story)
