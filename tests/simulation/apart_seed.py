"""A fleet whose clocks are up to two seconds apart, from a seed: everything goes by acceptance.

Each publish begins after the 202 of the one before, through a process that is drawn. So the order
of acceptance is known, whatever ids and times say: the first attempts of a backlog, every key, the
newest state of a key, backfills and pull must show it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from random import Random

import msgspec

from engine.fleet_world import FleetWorld, Machine
from engine.world import SECOND, Hit, Reply
from homing.engine.options import EngineOptions
from homing.model import Order
from homing.policy.admission import EventDraft
from homing.policy.backfill import PastStart
from homing.policy.presets import PRESETS
from homing.policy.retry import Anchor, Schedule
from homing.ports import ReplayFilter
from homing.sim.loop import run_virtual

APART_MS = 2_000
PLAIN, KEYED, NEWEST = (f"https://{name}.example/" for name in ("plain", "keyed", "newest"))
LATE = {order: f"https://late-{order.value}.example/" for order in Order}
PULLED = "pulled"
TENANT = "default"
KEYS = "abc"


class Story:
    """What is published, and what must be true of what arrives."""

    def __init__(self, world: FleetWorld, rng: Random) -> None:
        self.world, self.rng = world, rng
        self.numbers: dict[str, int] = defaultdict(int)  # of the last event of each key
        self.count = 0
        self.held: list[int] = []  # accepted while the endpoints were frozen
        self.problems: list[str] = []

    def machine(self) -> Machine:
        return self.rng.choice(self.world.machines)

    async def publish(self, events: int) -> None:
        for _ in range(events):
            key = self.rng.choice(KEYS)
            self.numbers[key] = self.count
            data = msgspec.json.encode({"n": self.count, "key": key})
            draft = EventDraft(tenant=TENANT, type="a.b", data=data, order_key=key)
            await self.machine().engine.publish([draft])
            self.count += 1
            await asyncio.sleep(self.rng.choice((0, 0, 0.001, 0.3)))

    def arrived(self, url: str) -> list[tuple[int, str]]:
        """The events that came to a URL, with their keys, in the order of the attempts."""
        hits = [
            it for machine in self.world.machines for it in machine.sender.hits if it.url == url
        ]
        hits = [it for it in hits if it.headers["homing-attempt"] == "1"]
        found = [read(it) for it in hits]
        return [(it.n, it.key) for it in found]

    def in_order(self, what: str, numbers: Sequence[int]) -> None:
        if list(numbers) != sorted(numbers):
            self.problems.append(f"{what}: {list(numbers)}")

    def by_key(self, url: str) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for number, key in self.arrived(url):
            found[key].append(number)
        return found

    def check_keys(self, url: str) -> None:
        for key, numbers in self.by_key(url).items():
            self.in_order(f"key {key} at {url}", numbers)

    def check_newest(self, url: str) -> None:
        """No older state after a newer one, and the last one is the newest there is."""
        self.check_keys(url)
        last = {key: numbers[-1] for key, numbers in self.by_key(url).items()}
        if last != self.numbers:
            self.problems.append(f"{url} ends with {last}, and not with {dict(self.numbers)}")


class Data(msgspec.Struct):
    n: int
    key: str


class Body(msgspec.Struct):
    data: Data


def read(hit: Hit) -> Data:
    return msgspec.json.decode(hit.body, type=Body).data


def options() -> EngineOptions:
    short = Schedule("short", (2 * SECOND,) * 5, Anchor.PREVIOUS_FAILURE, 3_600 * SECOND)
    return EngineOptions(schedules={**PRESETS, "short": short}, policy="short")


async def _live(seed: int) -> list[str]:
    rng = Random(f"apart {seed}")
    world = await FleetWorld.begin(options())
    for _ in range(rng.choice((2, 3))):
        await world.join(ahead_ms=rng.randint(-APART_MS, APART_MS))
    await world.wait(5 * SECOND)
    story = Story(world, rng)
    orders = {PLAIN: Order.NONE, KEYED: Order.KEY, NEWEST: Order.LATEST}
    for url, order in orders.items():
        await world.subscribe(url, "a.b", order=order)
    trouble = rng.random() < 0.5
    if trouble:  # Some attempts fail: what is blocked behind them goes in order all the same.
        for url in (KEYED, NEWEST):
            world.sender.scripts[url] = lambda _: Reply(
                code=rng.choice((200, 200, 500)), latency_ms=rng.choice((0, 20, 900))
            )
    await world.wait(2 * SECOND)
    for _ in range(rng.randint(1, 3)):
        await story.publish(rng.randint(2, 8))
        await world.wait(rng.choice((0, 500, 20 * SECOND)))
        await _freeze_and_enable(story)
    await world.wait(60 * SECOND)
    await _backfills(story)
    story.check_keys(KEYED)
    story.check_newest(NEWEST)
    return story.problems


async def _freeze_and_enable(story: Story) -> None:
    """What is accepted while an endpoint is frozen goes in the order of acceptance."""
    world, rng = story.world, story.rng
    await world.wait(5 * SECOND)
    for url in (PLAIN, KEYED, NEWEST):
        await story.machine().engine.freeze((await world.endpoint(url)).id, by="ann")
    await world.wait(2 * SECOND)
    first = story.count
    await story.publish(rng.randint(5, 25))
    held = set(range(first, story.count))
    for url in (PLAIN, KEYED, NEWEST):
        await story.machine().engine.enable((await world.endpoint(url)).id, by="ann")
    await world.wait(20 * SECOND)
    arrived = [number for number, _ in story.arrived(PLAIN) if number in held]
    story.in_order(f"what was held back at {PLAIN}", arrived)
    if len(arrived) != len(held):
        story.problems.append(f"{len(arrived)} of {len(held)} came to {PLAIN}")


async def _backfills(story: Story) -> None:
    world = story.world
    for order, url in LATE.items():
        late = await world.subscribe(url, "a.b", order=order)
        await world.wait(2 * SECOND)
        start = PastStart(since=world.start_ms - APART_MS, per_second=story.rng.choice((3, 100)))
        conditions = ReplayFilter(
            tenant=late.tenant,
            subscription_id=late.id,
            since=start.since,
            backfill=True,
            per_second=start.per_second,
        )
        await story.machine().engine.start_backfill(conditions)
    await world.wait(120 * SECOND)
    for order in (Order.NONE, Order.KEY):
        arrived = [number for number, _ in story.arrived(LATE[order])]
        if sorted(arrived) != list(range(story.count)):
            story.problems.append(f"{LATE[order]} has {len(arrived)} of {story.count}")
    story.in_order("a backfill", [number for number, _ in story.arrived(LATE[Order.NONE])])
    story.check_keys(LATE[Order.KEY])
    story.check_newest(LATE[Order.LATEST])
    if len(story.arrived(LATE[Order.LATEST])) != len(story.numbers):
        story.problems.append("a backfill of the newest made older ones")


def run_apart_seed(seed: int) -> list[str]:
    """What was wrong in the life of one seed."""
    return run_virtual(_live(seed))
