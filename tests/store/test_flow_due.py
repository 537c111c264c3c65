"""Due rows: the next rows of many endpoints, lane by lane, and the next due times."""

from __future__ import annotations

from msgspec.structs import replace

from homing.model import Delivery, Work
from homing.ports import DueAsk, DueRows, EndpointStart
from homing.store.tx import Db
from store.build import NOW, put
from store.scene import Scene


def ids(works: tuple[Work, ...]) -> list[int]:
    return [it.delivery.id for it in works]


async def test_fresh_rows_come_in_order_of_acceptance(db: Db) -> None:
    scene = await Scene(db).begin()
    deliveries = await scene.deliver(5)

    reply = await scene.due(fresh=3)

    assert ids(reply.fresh) == [it.id for it in deliveries[:3]]
    assert reply.fresh[0].delivery == deliveries[0]
    assert reply.more_fresh
    assert reply.retry == ()
    assert reply.next_due is None
    assert not (await scene.due(fresh=5)).more_fresh


async def test_a_row_held_back_before_the_last_enable_belongs_to_the_retry_lane(db: Db) -> None:
    scene = await Scene(db).begin()
    old = await scene.deliver(2)
    await scene.enable(NOW + 500)
    scene.make.now += 1_000
    new = await scene.deliver(2)

    reply = await scene.due(since=NOW + 500, now=NOW + 2_000)

    assert ids(reply.fresh) == [it.id for it in new]
    assert ids(reply.retry) == [it.id for it in old]


async def test_the_retry_lane_goes_by_due_time_over_all_its_parts(db: Db) -> None:
    scene = await Scene(db).begin()
    held, late, soon, future = await scene.deliver(4)
    await scene.tried(late, due_at=NOW + 300)
    await scene.tried(soon, due_at=NOW + 100)
    await scene.tried(future, due_at=NOW + 9_000)
    replay = replace(
        scene.make.delivery((await scene.due()).fresh[0].event, scene.sub, replay_of=held),
        due_at=NOW + 200,
    )
    await scene.flow.publish([[replace(scene.make.event(), deliveries=(replay,))]], number=99)

    await scene.enable(NOW + 1)
    reply = await scene.due(since=NOW + 1, now=NOW + 1_000)

    assert ids(reply.retry) == [held.id, soon.id, replay.id, late.id]
    assert reply.next_due == NOW + 9_000


async def test_a_row_beyond_the_limit_tells_its_time(db: Db) -> None:
    scene = await Scene(db).begin()
    for number, delivery in enumerate(await scene.deliver(4)):
        await scene.tried(delivery, due_at=NOW + number)

    reply = await scene.due(retry=2, now=NOW + 50)

    assert len(reply.retry) == 2
    assert reply.next_due == NOW + 2


async def test_a_lane_that_wants_nothing_is_still_told_of(db: Db) -> None:
    scene = await Scene(db).begin()
    first, _ = await scene.deliver(2)
    await scene.tried(first, due_at=NOW + 7)

    reply = await scene.due(fresh=0, retry=0, now=NOW + 50)

    assert reply == DueRows(scene.endpoint.id, (), (), more_fresh=True, next_due=NOW + 7)


async def test_many_endpoints_are_answered_at_once_in_the_order_asked(db: Db) -> None:
    scene = await Scene(db).begin()
    other = scene.make.endpoint("https://b.example/")
    empty = scene.make.endpoint("https://c.example/")
    there = scene.make.subscription(other)
    await put(db, endpoints=[other, empty], subscriptions=[there])
    mine, theirs = scene.make.event(scene.sub), scene.make.event(there)
    await scene.publish([theirs, mine])

    asks = [DueAsk(it.id, NOW, 5, 5, it.bucket) for it in (empty, other, scene.endpoint)]
    replies = await scene.flow.due(asks, now=NOW)

    assert [it.endpoint_id for it in replies] == [empty.id, other.id, scene.endpoint.id]
    assert [ids(it.fresh) for it in replies] == [
        [],
        [theirs.deliveries[0].id],
        [mine.deliveries[0].id],
    ]


async def test_deliveries_of_one_event_share_it(db: Db) -> None:
    scene = await Scene(db).begin()
    other = scene.make.endpoint("https://b.example/")
    there = scene.make.subscription(other)
    await put(db, endpoints=[other], subscriptions=[there])
    await scene.publish([scene.make.event(scene.sub, there)])

    asks = [DueAsk(it.id, NOW, 5, 5, it.bucket) for it in (other, scene.endpoint)]
    one, two = await scene.flow.due(asks, now=NOW)

    assert one.fresh[0].delivery != two.fresh[0].delivery
    assert one.fresh[0].event is two.fresh[0].event


async def test_nothing_asked_is_nothing_answered(db: Db) -> None:
    scene = await Scene(db).begin()
    assert await scene.flow.due([], now=NOW) == []


async def test_at_start_endpoints_with_anything_pending_come_page_by_page(db: Db) -> None:
    scene = await Scene(db).begin()
    endpoints = [scene.make.endpoint(f"https://{n}.example/") for n in range(7)]
    subs = [scene.make.subscription(it) for it in endpoints]
    await put(db, endpoints=endpoints, subscriptions=subs)
    await scene.publish([scene.make.event(*subs[:5]), scene.make.event(*subs[:5])])

    pages: list[list[EndpointStart]] = []
    after_id = 0
    while page := await scene.flow.start_page(after_id, 2):
        pages.append(page)
        after_id = page[-1].endpoint.id

    assert [len(page) for page in pages] == [2, 2, 1]
    assert [it.endpoint for page in pages for it in page] == endpoints[:5]
    assert all(it.first and it.next_due is None for page in pages for it in page)


async def test_an_endpoint_tells_what_it_has_to_do(db: Db) -> None:
    scene = await Scene(db).begin()
    idle = scene.make.endpoint("https://idle.example/")
    await put(db, endpoints=[idle])
    deliveries = await scene.deliver(3)
    await scene.tried(deliveries[0], due_at=NOW + 900)
    await scene.tried(deliveries[1], due_at=NOW + 500)

    known = await scene.flow.endpoints([idle.id, 12345, scene.endpoint.id])

    assert known == [
        EndpointStart(scene.endpoint, first=True, next_due=NOW + 500, oldest_id=deliveries[0].id),
        EndpointStart(idle, first=False, next_due=None, oldest_id=None),
    ]


async def test_new_ids_begin_after_all_that_is_there(db: Db) -> None:
    scene = Scene(db)
    assert await scene.flow.last_id() == 0
    await scene.begin()
    assert await scene.flow.last_id() == scene.sub.id
    deliveries = await scene.deliver(3)
    assert await scene.flow.last_id() == deliveries[-1].id


async def test_what_expired_is_found_in_bounded_looks(db: Db) -> None:
    scene = await Scene(db).begin()
    deliveries = await scene.deliver(5)
    ends = [NOW + 10, NOW + 99, NOW + 10, NOW + 99, NOW + 10]
    for delivery, end in zip(deliveries, ends, strict=True):
        await scene.rewrite(replace(delivery, expires_at=end))

    found: list[Delivery] = []
    looks: list[int | None] = []
    after_id: int | None = 0
    while after_id is not None:
        page, after_id, next_at = await scene.flow.expired(
            scene.endpoint.id,
            bucket=scene.endpoint.bucket,
            now=NOW + 10,
            after_id=after_id,
            limit=2,
        )
        assert next_at == (NOW + 99 if len(looks) < 2 else None)
        found += page
        looks.append(after_id)

    assert [it.id for it in found] == [deliveries[n].id for n in (0, 2, 4)]
    assert looks == [deliveries[1].id, deliveries[3].id, None]
    assert await scene.flow.expired(999, bucket=0, now=NOW, after_id=0, limit=2) == ([], None, None)
