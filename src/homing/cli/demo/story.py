"""The chapters of the demo: what happens to the receivers, and what the operator does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct

from homing.cli.demo.rules import SPEED
from homing.cli.demo.world import EVENTS_PER_SECOND, Mood, World
from homing.model import show_id

LENGTH_S = 120.0
EVENTS_PER_SECOND_MAX = 60  # at any speed

Action = Callable[[World], Awaitable[None]]


class Chapter(Struct, frozen=True):
    """At this second (at the default speed) the sentence is shown and the action run."""

    at_s: float
    about: str
    sentence: str
    action: Action


async def _begin(world: World) -> None:
    world.rate = EVENTS_PER_SECOND


async def _flaky_down(world: World) -> None:
    world.flaky.mood = Mood.DOWN


async def _flaky_good(world: World) -> None:
    world.flaky.mood = Mood.GOOD


async def _flaky_shaky(world: World) -> None:
    world.flaky.mood = Mood.SHAKY


async def _nothing(_: World) -> None:
    """Only the sentence is shown."""


async def _dead_recovers(world: World) -> None:
    world.dead.mood = Mood.GOOD
    await world.dead.open(world.random)


async def _enable_dead(world: World) -> None:
    await world.client.enable_endpoint(show_id("ep", world.dead.endpoint_id))


async def _replay(world: World) -> None:
    endpoint = show_id("ep", world.dead.endpoint_id)
    found = await world.client.count_replay(status="dropped", endpoint=endpoint)
    if not found.count:
        return
    await world.client.start_replay(status="dropped", endpoint=endpoint)
    world.report("dead", f"Replaying all {found.count:,} dropped deliveries.")


async def _end_traffic(world: World) -> None:
    world.rate = 0.0


CHAPTERS = (
    Chapter(
        1,
        "",
        f"{EVENTS_PER_SECOND} events per second are published; each goes to three URLs.",
        _begin,
    ),
    Chapter(3, "dead", "No server listens at this URL: every attempt fails.", _nothing),
    Chapter(
        5,
        "flaky",
        "It responds with 503 to three requests in ten; retries deliver these.",
        _nothing,
    ),
    Chapter(17, "flaky", "Now it responds with 503 to every request.", _flaky_down),
    Chapter(
        24,
        "",
        "healthy is not affected: each URL has its own slots, and retries never delay first "
        "attempts.",
        _nothing,
    ),
    Chapter(
        32,
        "",
        "Waiting deliveries cost no attempts: a disabled URL gets one probe at a time.",
        _nothing,
    ),
    Chapter(
        36,
        "dead",
        "The first deliveries have waited for 48 hours of production time and are dropped.",
        _nothing,
    ),
    Chapter(42, "flaky", "It is repaired. Homing notices with the next probe.", _flaky_good),
    Chapter(
        60,
        "flaky",
        "It is flaky again: three in ten fail, and retries deliver these.",
        _flaky_shaky,
    ),
    Chapter(
        64,
        "",
        "A frozen URL is not probed; new events are accepted and wait until a person enables it.",
        _nothing,
    ),
    Chapter(71, "flaky", "A second outage.", _flaky_down),
    Chapter(79, "flaky", "It is repaired again.", _flaky_good),
    Chapter(
        84, "dead", "Its owner has repaired it and asks the operator to enable it.", _dead_recovers
    ),
    Chapter(88, "dead", "The operator: homing endpoints enable …", _enable_dead),
    Chapter(96, "", "The operator: homing replay --status dropped …", _replay),
    Chapter(
        106, "", "No more events are published. Pending deliveries are completed.", _end_traffic
    ),
)


async def play(world: World, speed: int) -> None:
    """Play all chapters, then wait until no delivery is pending."""
    pace = SPEED / speed
    started = world.now
    for chapter in CHAPTERS:
        await _until(world, started + round(chapter.at_s * pace * 1000))
        world.report(chapter.about, chapter.sentence)
        await chapter.action(world)
        if world.rate:
            world.rate = min(EVENTS_PER_SECOND / pace, EVENTS_PER_SECOND_MAX)
    end = started + round(LENGTH_S * pace * 1000)
    while world.now < end and (world.ledger is None or world.ledger.pending):
        await world.refreshed()
    await asyncio.sleep(min(2 * pace, 2.0))


async def _until(world: World, at: int) -> None:
    await asyncio.sleep(max(at - world.now, 0) / 1000)
