"""The order of acceptance: of two publishes, the one that began after the other's commit is later.

On PostgreSQL transactions are held open: the lower of two numbers is committed last.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from homing.model import NOT_BOUND
from homing.ports import DueAsk, NewEvent
from homing.store import acceptance
from homing.store.admin import Admin
from homing.store.flow import Flow
from homing.store.tx import Db, Tx
from homing.store.writes import append_events
from postgres import Server
from store.build import NOW, put
from store.scene import Scene
from store.test_backfill import Past
from store.test_pull import two_processes


async def place_of(db: Db, *events: NewEvent) -> list[tuple[int, int]]:
    """The events in the order in which everybody reads them."""

    async def read(tx: Tx) -> list[tuple[int, int]]:
        found = await tx.all(
            "past_events", after_position=0, after_id=0, upto_position=1 << 62, limit=1_000
        )
        return [(row[7], row[0]) for row in found]

    wanted = {it.event.id for it in events}
    return [it for it in await db.run(read, read_only=True) if it[1] in wanted]


async def test_a_later_publish_has_a_higher_number_and_a_batch_goes_by_index(db: Db) -> None:
    scene = await Scene(db).begin()
    scene.make.now = NOW + 60_000  # The first process has a clock that is a minute ahead.
    first = [scene.make.event(scene.sub) for _ in range(3)]
    await scene.publish(first)
    scene.make.now = NOW
    second = [scene.make.event(scene.sub) for _ in range(2)]
    await scene.publish(second)

    found = await place_of(db, *first, *second)

    assert [id_ for _, id_ in found] == [it.event.id for it in (*first, *second)]
    assert found[0][0] == found[2][0] < found[3][0] == found[4][0]
    assert [it.delivery.event_id for it in (await scene.due()).fresh] == [id_ for _, id_ in found]


async def test_no_number_is_given_again(db: Db) -> None:
    flow = Flow(db)
    given = []
    for _ in range(3):
        await flow.raise_positions()
        given += [await db.run(acceptance.take), await db.run(acceptance.take)]
    assert given == sorted(set(given))
    assert given[0] >= NOW * 1_000 or given[0] > 1_700_000_000_000_000  # the database's time

    async def above(tx: Tx) -> int:
        await acceptance.raise_above(tx, given[-1] + 10**9)
        return await acceptance.take(tx)

    assert await db.run(above) > given[-1] + 10**9


async def test_what_was_accepted_since_an_enable_is_fresh_whatever_its_time(db: Db) -> None:
    scene = await Scene(db).begin()
    scene.make.now = NOW + 5_000  # of a process whose clock is ahead
    (held,) = await scene.deliver(1)
    await scene.enable(NOW + 2_000)
    scene.make.now = NOW  # of one whose clock is behind
    (fresh,) = await scene.deliver(1)

    reply = await scene.due(since=NOW + 2_000, now=NOW + 2_000)

    assert [it.delivery.id for it in reply.fresh] == [fresh.id]
    assert [it.delivery.id for it in reply.retry] == [held.id]


# --- transactions that are held open ---------------------------------------------------------


class Slow:
    """A publish that has its number, and is committed when it may go on."""

    def __init__(self, db: Db, *events: NewEvent) -> None:
        self._held, self._go_on = asyncio.Event(), asyncio.Event()

        async def work(tx: Tx) -> int:
            position, _ = await append_events(tx, events, node=7)
            self._held.set()
            await self._go_on.wait()
            return position

        self._task = asyncio.create_task(db.run(work))

    async def has_number(self) -> None:
        await self._held.wait()

    async def commit(self) -> int:
        self._go_on.set()
        return await self._task


async def test_a_backfill_takes_a_publish_that_has_its_number_and_is_committed_late(
    postgres: Server,
) -> None:
    """The bound "up to now" is read when none is under way that was matched before."""
    async with two_processes(postgres) as (one, two):
        scene = await Past(two).begin()
        late = scene.make.event(scene.sub)
        slow = Slow(one, late)
        await slow.has_number()
        early = scene.make.event(scene.sub)
        await scene.publish([early])
        saved = await Admin(two).save_backfill(scene.job())
        assert saved.upto_position == NOT_BOUND
        await slow.commit()  # The engine waits for it: it may be matched before the job.
        job = await Admin(two).bound_backfill(saved.id)
        assert job is not None
        after = scene.make.event(scene.sub)
        await scene.publish([after])

        found, _, upto, all_seen = await scene.admin.past_events(job, limit=10)

        assert [it.id for it in found] == [late.event.id, early.event.id]
        assert all_seen
        assert upto[0] <= job.upto_position


async def test_a_first_attempt_with_a_lower_number_that_is_committed_late_is_read_first(
    postgres: Server,
) -> None:
    async with two_processes(postgres) as (one, two):
        scene = await Scene(two).begin()
        late, early = scene.make.event(scene.sub), scene.make.event(scene.sub)
        slow = Slow(one, late)
        await slow.has_number()
        await scene.publish([early])
        assert [it.event.id for it in (await scene.due()).fresh] == [early.event.id]
        assert await slow.commit() < scene.position

        assert [it.event.id for it in (await scene.due()).fresh] == [late.event.id, early.event.id]


async def test_one_that_is_committed_below_the_place_of_a_search_is_read_when_it_is_told(
    postgres: Server,
) -> None:
    """Where rows of a paused subscription are passed over, a search goes on where it was."""
    async with two_processes(postgres) as (one, two):
        scene = await Scene(two).begin()
        paused = scene.make.subscription(scene.endpoint)
        await put(two, subscriptions=[paused])
        late = scene.make.event(scene.sub)
        slow = Slow(one, late)
        await slow.has_number()
        await scene.publish([scene.make.event(paused)])
        ask = DueAsk(
            scene.endpoint.id,
            NOW,
            10,
            10,
            scene.endpoint.bucket,
            paused=frozenset({paused.id}),
        )
        (reply,) = await scene.flow.due([ask], now=NOW)
        assert reply.fresh == ()
        position = await slow.commit()
        (again,) = await scene.flow.due([replace(ask, seen=reply.seen)], now=NOW)
        assert again.fresh == (), "it is below the place"
        told = {source: min(place, (position - 1, 0)) for source, place in reply.seen.items()}
        (found,) = await scene.flow.due([replace(ask, seen=told)], now=NOW)
        assert [it.event.id for it in found.fresh] == [late.event.id]


async def test_a_stream_shows_events_in_the_order_of_their_numbers(postgres: Server) -> None:
    """Publishes of one stream wait for each other, and take their numbers when they have waited."""
    async with two_processes(postgres) as (one, two):
        scene = await Scene(two).begin()
        pulled = replace(scene.make.subscription(scene.endpoint), url="", endpoint_id=0)
        await Admin(two).create_subscription(pulled, endpoint=None)
        flows = [Flow(one, node=1), Flow(two, node=2)]

        async def publish(flow: Flow, number: int) -> tuple[int, int]:
            new = replace(scene.make.event(), pulled=(pulled.id,))
            done = await flow.publish([[new]], number=number)
            return done.position, new.event.id

        async def many(flow: Flow) -> list[tuple[int, int]]:
            return [await publish(flow, number) for number in range(1, 16)]

        found = [it for some in await asyncio.gather(*map(many, flows)) for it in some]

        async def entries(tx: Tx) -> list[int]:
            read = await tx.all("pull_sizes", subscription_id=pulled.id, after=0, upto=100)
            return [row[1] for row in read]

        assert await two.run(entries, read_only=True) == [id_ for _, id_ in sorted(found)]


async def test_numbers_grow_while_processes_start(postgres: Server) -> None:
    """A start raises the sequence while others take numbers: none goes back, none comes twice."""
    async with two_processes(postgres) as (one, two):
        given: list[int] = []
        done = False

        async def take() -> None:
            while not done:
                given.append(await one.run(acceptance.take))

        async def start(db: Db) -> None:
            for _ in range(10):
                await Flow(db).raise_positions()

        taking = asyncio.create_task(take())
        await asyncio.gather(*(start(two) for _ in range(3)))
        done = True
        await taking
        assert given == sorted(set(given))
