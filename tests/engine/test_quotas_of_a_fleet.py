"""The rates of tenants are those of the installation: processes tell each other what they grant.

Promised: what-homing-promises.md#lanes-and-fairness.
"""

from __future__ import annotations

from typing import Literal

import pytest

from engine.fleet_world import FleetWorld, Machine, fleet, two
from engine.world import MINUTE, SECOND
from homing.app.quotas import Quotas
from homing.errors import TooMany
from homing.policy.admission import EventDraft
from homing.policy.quota import Quota

ACME = "acme"
PER_MINUTE = 60
PER_SECOND = 10


def quotas(world: FleetWorld, machine: Machine) -> Quotas:
    limits = Quota(publish_per_second=PER_SECOND, changes_per_minute=PER_MINUTE)
    made = Quotas(world.views, world.clock.now, default=limits, tenants={})
    assert machine.engine.fleet is not None
    machine.engine.fleet.share_quotas(made.take_spent, made.spent_elsewhere)
    return made


async def granted(quota: Quotas, rate: Literal["publish", "change"]) -> int:
    """How many a process grants now, one after the other."""
    event = EventDraft(tenant=ACME, type="a.b", data=b"1", key="k")
    for count in range(10 * PER_MINUTE):
        try:
            if rate == "change":
                quota.count_change(ACME)
            else:
                await quota.check_publish([event])
        except TooMany:
            return count
    raise AssertionError("there is no limit")


@pytest.mark.parametrize("rate", ["publish", "change"])
def test_what_one_process_has_granted_the_others_do_not_grant_again(
    rate: Literal["publish", "change"],
) -> None:
    async def story(world: FleetWorld) -> None:
        one, other = (quotas(world, it) for it in await two(world))
        first = await granted(one, rate)
        await world.wait(SECOND + 100)
        unit_s = 1 if rate == "publish" else 60
        least = -(-1_100 // (1_000 * unit_s // (PER_SECOND if unit_s == 1 else PER_MINUTE)))
        assert await granted(other, rate) <= least + 1, "what became free in the meantime"
        assert first >= PER_SECOND

    fleet(story)


def test_over_a_minute_a_fleet_grants_as_much_as_one_process() -> None:
    async def story(world: FleetWorld) -> None:
        both = [quotas(world, it) for it in await two(world)]
        total = 0
        for it in both:
            total += await granted(it, "change")
        for _ in range(10 * MINUTE // SECOND):
            await world.wait(SECOND)
            for it in both:
                total += await granted(it, "change")
        in_ten_minutes = 10 * PER_MINUTE + PER_MINUTE  # and what was saved up
        assert total <= in_ten_minutes * 1.25

    fleet(story)


def test_other_tenants_are_not_counted() -> None:
    async def story(world: FleetWorld) -> None:
        one, other = (quotas(world, it) for it in await two(world))
        await granted(one, "change")
        await world.wait(2 * SECOND)
        other.count_change("neighbour")

    fleet(story)
