"""What happens in the demo, and when: the receivers' fate, and what a person does about it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct

from homing.cli.demo.rules import SPEED
from homing.cli.demo.world import EVENTS_A_SECOND, Mood, World
from homing.model import show_id

LENGTH_S = 120.0
EVENTS_MOST = 60  # a second, however fast the story is told

Act = Callable[[World], Awaitable[None]]


class Chapter(Struct, frozen=True):
    """At this second (at the usual speed) somebody says this and does that."""

    at_s: float
    about: str
    sentence: str
    act: Act


async def _begin(world: World) -> None:
    world.rate = EVENTS_A_SECOND


async def _flaky_down(world: World) -> None:
    world.flaky.mood = Mood.DOWN


async def _flaky_well(world: World) -> None:
    world.flaky.mood = Mood.WELL


async def _flaky_shaky(world: World) -> None:
    world.flaky.mood = Mood.SHAKY


async def _nothing(_: World) -> None:
    """Only a word."""


async def _dead_lives(world: World) -> None:
    world.dead.mood = Mood.WELL
    await world.dead.open(world.chance)


async def _enable_dead(world: World) -> None:
    await world.client.enable_endpoint(show_id("ep", world.dead.endpoint_id))


async def _replay(world: World) -> None:
    endpoint = show_id("ep", world.dead.endpoint_id)
    found = await world.client.count_replay(status="dropped", endpoint=endpoint)
    if not found.count:
        return
    await world.client.start_replay(status="dropped", endpoint=endpoint)
    world.say("dead", f"Replaying all {found.count:,} deliveries that were dropped.")


async def _end_traffic(world: World) -> None:
    world.rate = 0.0


CHAPTERS = (
    Chapter(
        1,
        "",
        f"{EVENTS_A_SECOND} events a second are published; each goes to three URLs.",
        _begin,
    ),
    Chapter(3, "dead", "Nobody listens there: every attempt fails.", _nothing),
    Chapter(
        5,
        "flaky",
        "It answers 503 to three requests in ten: that is what retries are for.",
        _nothing,
    ),
    Chapter(17, "flaky", "Now it answers 503 to everything.", _flaky_down),
    Chapter(
        24,
        "",
        "healthy does not notice: each URL has slots of its own, retries never delay first "
        "attempts.",
        _nothing,
    ),
    Chapter(
        32, "", "What waits costs no attempts: a disabled URL gets one probe at a time.", _nothing
    ),
    Chapter(
        36,
        "dead",
        "The first ones have waited 48 hours of production time: from now on they are dropped.",
        _nothing,
    ),
    Chapter(
        42, "flaky", "It is repaired. Nobody tells Homing: the next probe finds out.", _flaky_well
    ),
    Chapter(60, "flaky", "It wavers again: three in ten fail, retries repair it.", _flaky_shaky),
    Chapter(
        64,
        "",
        "A frozen URL is not even probed; new events are accepted and wait for a person.",
        _nothing,
    ),
    Chapter(71, "flaky", "A second outage.", _flaky_down),
    Chapter(79, "flaky", "It is repaired again.", _flaky_well),
    Chapter(
        84, "dead", "Its owner has repaired it, and asks the operator to enable it.", _dead_lives
    ),
    Chapter(88, "dead", "The operator: homing endpoints enable …", _enable_dead),
    Chapter(96, "", "The operator: homing replay --status dropped …", _replay),
    Chapter(106, "", "No more events. What is pending is brought home.", _end_traffic),
)


async def tell(world: World, speed: int) -> None:
    """Until the story is told and nothing waits any more."""
    pace = SPEED / speed
    began = world.now
    for chapter in CHAPTERS:
        await _until(world, began + round(chapter.at_s * pace * 1000))
        world.say(chapter.about, chapter.sentence)
        await chapter.act(world)
        if world.rate:
            world.rate = min(EVENTS_A_SECOND / pace, EVENTS_MOST)
    end = began + round(LENGTH_S * pace * 1000)
    while world.now < end and (world.ledger is None or world.ledger.pending):
        await world.looked()
    await asyncio.sleep(min(2 * pace, 2.0))


async def _until(world: World, at: int) -> None:
    await asyncio.sleep(max(at - world.now, 0) / 1000)
