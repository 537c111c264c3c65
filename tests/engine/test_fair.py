"""fair_by: a bulk edit by one person does not delay the events of another, also from the store."""

from __future__ import annotations

import json

import msgspec
import pytest

from engine.world import SECOND, Hit, Reply, World, always, balanced, live
from homing.engine.options import EngineOptions
from homing.model import State
from homing.policy.admission import EventDraft
from homing.policy.fair import FairBy

URL = "https://slow.example/"
BULK = 10_000
SLOTS = 16
FAIR = EngineOptions(fair_by=FairBy("data.userId"))
# Few deliveries fit into memory: nearly all of the bulk edit waits in the store.
SMALL = msgspec.structs.replace(FAIR, ready_max=50)
TINY = msgspec.structs.replace(FAIR, ready_bytes_max=2_000)


def draft(person: str | None, number: int, *, tenant: str = "default") -> EventDraft:
    data = {"n": number} if person is None else {"userId": person, "n": number}
    return EventDraft(tenant=tenant, type="a.b", data=json.dumps(data).encode())


async def edit(world: World, person: str | None, count: int, *, begin: int = 0) -> None:
    """Publish so many events of one person, in batches."""
    for first in range(begin, begin + count, 1_000):
        last = min(first + 1_000, begin + count)
        await world.engine.publish([draft(person, number) for number in range(first, last)])


def person_of(hit: Hit) -> str:
    return str(json.loads(hit.body)["data"].get("userId", ""))


def people(world: World, since: int = 0) -> list[str]:
    return [person_of(hit) for hit in world.sender.hits[since:]]


async def before(world: World, person: str, *, within_ms: int = 5 * SECOND) -> int:
    """Publish one event of a person; return how many of the others start before it."""
    sent = len(world.sender.hits)
    await edit(world, person, 1)
    await world.wait(within_ms)
    return people(world, sent).index(person)


@pytest.mark.parametrize("options", [FAIR, SMALL, TINY], ids=["memory", "few", "bytes"])
def test_one_event_waits_for_a_handful_of_another_persons_ten_thousand(
    options: EngineOptions,
) -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=SECOND)
        await world.subscribe(URL)
        await edit(world, "anna", BULK)
        await world.wait(20 * SECOND + 500)  # Attempts start and end at full seconds.
        assert await before(world, "ben") <= (2 * SLOTS if options is TINY else 1)
        assert await before(world, "cleo") <= (2 * SLOTS if options is TINY else 1)
        assert len(world.sender.hits) < BULK // 5  # The bulk edit is far from its end.
        await balanced(world)

    live(story, options)


@pytest.mark.parametrize(
    ("options", "at_most"),
    [
        pytest.param(FAIR, 1, id="the rows of a new person are read at once"),
        pytest.param(SMALL, 17, id="with little memory few rows are queued"),
    ],
)
def test_an_endpoint_with_one_slot_does_not_queue_much_of_a_bulk_edit(
    options: EngineOptions, at_most: int
) -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=100)
        await world.subscribe(URL)
        await edit(world, "anna", 1)
        await world.wait(SECOND)  # From now on, new deliveries are queued without a read.
        await edit(world, "anna", 300, begin=1)
        await world.wait(250)
        assert await before(world, "ben", within_ms=10 * SECOND) <= at_most

    live(story, msgspec.structs.replace(options, endpoint_slots=1))


def test_without_fair_by_it_waits_for_all_of_them() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=SECOND)
        await world.subscribe(URL)
        await edit(world, "anna", 2_000)
        await world.wait(20 * SECOND)
        assert await before(world, "ben", within_ms=200 * SECOND) > 1_500

    live(story)


@pytest.mark.parametrize("options", [FAIR, SMALL], ids=["memory", "few"])
def test_also_after_a_restart_and_for_what_was_published_before_it(options: EngineOptions) -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=SECOND)
        await world.subscribe(URL)
        await edit(world, "anna", BULK)
        await world.wait(5 * SECOND)
        await edit(world, "ben", 2)
        sent = len(world.sender.hits)
        await world.crash()
        await world.wait(10 * SECOND)
        assert people(world, sent)[:6].count("ben") == 2
        await world.wait(10 * SECOND)
        assert await before(world, "cleo") <= 1

    live(story, options)


def test_every_person_of_many_has_a_turn_before_anybody_has_many() -> None:
    """Far more persons than are read at once; each has five events, Anna has thousands."""

    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=200)
        await world.subscribe(URL)
        await edit(world, "anna", 3_000)
        await world.wait(10 * SECOND)
        sent = len(world.sender.hits)
        names = [f"p{number}" for number in range(300)]
        for _ in range(5):
            await world.engine.publish([draft(name, 0) for name in names])
        while len(world.sender.hits) < sent + 2_000:
            await world.wait(SECOND)
        found = people(world, sent)
        assert found[:1_500].count("anna") < 50
        for name in names:
            assert found.count(name) == 5
            # Two persons may share a group; then both wait twice as long.
            assert found.index(name) < 700

    live(story, SMALL)


def test_the_order_of_acceptance_holds_for_each_person() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=30)
        await world.subscribe(URL)
        for first in range(0, 400, 40):
            for person in ("anna", "ben", None):
                await edit(world, person, 40, begin=first)
            await world.wait(50)
        await world.wait(120 * SECOND)
        for person in ("anna", "ben", ""):
            hits = [hit for hit in world.sender.hits if person_of(hit) == person]
            numbers = [json.loads(hit.body)["data"]["n"] for hit in hits]
            assert numbers == list(range(400))

    live(story, SMALL)


def test_a_rate_limited_endpoint_sends_to_persons_in_turn() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, rate_per_second=2)
        await edit(world, "anna", 500)
        await world.wait(3 * SECOND)
        await edit(world, "ben", 5)
        sent = len(world.sender.hits)
        await world.wait(10 * SECOND)
        assert people(world, sent)[:12].count("ben") == 5

    live(story, FAIR)


def test_rows_of_groups_are_sent_after_the_setting_was_removed() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=SECOND)
        await world.subscribe(URL)
        for number in range(200):
            await world.engine.publish([draft(f"p{number % 40}", number)])
        world.options = EngineOptions()
        await world.crash()
        await edit(world, "anna", 10)
        await world.wait(120 * SECOND)
        numbers = {(person_of(it), json.loads(it.body)["data"]["n"]) for it in world.sender.hits}
        assert len(numbers) == 210

    live(story, SMALL)


def test_deliveries_of_groups_that_an_outage_held_back_are_sent() -> None:
    async def story(world: World) -> None:
        down = True
        world.sender.scripts[URL] = lambda _: Reply(503 if down else 200, latency_ms=5)
        await world.subscribe(URL)
        for number in range(300):
            await world.engine.publish([draft(f"p{number % 50}", number)])
            await world.wait(10)
        assert (await world.endpoint(URL)).health.state is State.DISABLED
        down = False
        await world.wait(3_600 * SECOND)
        rows = [it for it in await world.deliveries() if it.event_type == "a.b"]
        assert {it.status.value for it in rows} == {"delivered"}
        await balanced(world)

    live(story, FAIR)


def test_a_tenant_has_a_path_of_its_own() -> None:
    options = EngineOptions(tenant_fair_by={"fair": FairBy("data.userId")})
    assert options.is_fair
    assert not options.fair_by_of("default")

    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=SECOND)
        await world.subscribe(URL, tenant="fair")
        await world.engine.publish([draft("anna", n, tenant="fair") for n in range(900)])
        await world.wait(20 * SECOND)
        sent = len(world.sender.hits)
        await world.engine.publish([draft("ben", 0, tenant="fair")])
        await world.wait(2 * SECOND)
        assert "ben" in people(world, sent)[:2]

    live(story, options)
