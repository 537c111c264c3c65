"""A policy that subscriptions use keeps its last known numbers after it was removed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.world import HOUR, SECOND, World, always, live
from homing.engine.options import EngineOptions
from homing.errors import UnknownPolicy
from homing.model import show_id
from homing.policy.presets import PRESETS
from homing.policy.retry import Anchor, Schedule

URL = "https://a.example/"
QUICK = Schedule("quick", (7 * SECOND, 19 * SECOND), Anchor.FIRST_FAILURE, 19 * SECOND)
SLOWER = replace(QUICK, delays_ms=(9 * SECOND, 19 * SECOND))


def with_policies(*own: Schedule) -> EngineOptions:
    return EngineOptions(schedules={**PRESETS, **{it.name: it for it in own}})


async def failing_times(world: World) -> list[int]:
    """When a new event is attempted, in seconds after its first attempt."""
    world.sender.scripts[URL] = always(500)
    world.sender.hits.clear()
    await world.publish()
    await world.wait(HOUR)
    times = world.hits(URL)
    return [(at - times[0]) // SECOND for at in times]


async def restart(world: World, options: EngineOptions) -> None:
    world.options = options
    await world.crash()


def test_a_policy_that_was_removed_from_the_settings_keeps_its_numbers() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, policy="quick")
        assert await failing_times(world) == [0, 7, 19]
        assert world.engine.kept_policies() == {}
        await restart(world, with_policies())
        assert await failing_times(world) == [0, 7, 19]
        assert {name: len(used) for name, used in world.engine.kept_policies().items()} == {
            "quick": 1
        }
        await restart(world, with_policies(QUICK))
        assert world.engine.kept_policies() == {}

    live(story, with_policies(QUICK))


def test_other_numbers_in_the_settings_count_from_the_next_start() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, policy="quick")
        await restart(world, with_policies(SLOWER))
        assert await failing_times(world) == [0, 9, 19]
        await restart(world, with_policies())
        assert await failing_times(world) == [0, 9, 19]

    live(story, with_policies(QUICK))


def test_a_policy_that_no_subscription_uses_is_not_reported() -> None:
    async def story(world: World) -> None:
        await restart(world, with_policies())
        made = await world.subscribe(URL)
        assert world.engine.kept_policies() == {}
        assert made.policy is None

    live(story, with_policies(QUICK))


def test_a_policy_whose_numbers_nobody_knows_refuses_the_start_with_what_uses_it() -> None:
    async def story(world: World) -> None:
        made = await world.subscribe(URL, policy="quick")
        assert set(world.engine.kept_policies()) == {"quick"}
        with pytest.raises(UnknownPolicy) as refused:
            await world.start()
        for told in ("The policy quick", show_id("sub", made.id), "[policies.quick]"):
            assert told in str(refused.value)

    live(story)


def test_a_process_without_the_policy_learns_it_from_one_that_has_it() -> None:
    async def story(world: World) -> None:
        await world.admin.keep_policies([QUICK])  # as the other process did at its start
        await world.subscribe(URL, policy="quick")  # through that process
        assert await failing_times(world) == [0, 7, 19]
        assert set(world.engine.kept_policies()) == {"quick"}

    live(story)
