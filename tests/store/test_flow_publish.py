"""Publishing writes all of a request or nothing, in one commit; the same id is one event."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from homing.ports import Receipt, Refusal
from homing.store import rows
from homing.store.flow import Flow
from homing.store.tx import Db
from store.build import Maker
from store.scene import Scene, count, every


async def test_an_event_is_written_with_all_its_deliveries(db: Db) -> None:
    scene = await Scene(db).begin()
    new = scene.make.event(scene.sub, scene.sub)

    assert await scene.publish([new]) == [[Receipt(new.event.key, 2, new=True)]]

    assert await every(db, "event") == [rows.event_row(new)[:-1]]
    assert await every(db, "pending") == [rows.pending_row(it) for it in scene.stored(new)]
    assert await every(db, "event_key") == [rows.event_key_row(new)]
    assert await every(db, "ledger") == [("acme", 0, 2, 0, 0, 0, 0)]


async def test_an_event_that_matches_nothing_is_kept(db: Db) -> None:
    scene = await Scene(db).begin()
    new = scene.make.event()

    assert await scene.publish([new]) == [[Receipt(new.event.key, 0, new=True)]]

    (row,) = await every(db, "event")
    assert row[7:] == ("", "", "", "", 0, new.event.id)
    assert await count(db, "ledger") == 0


async def test_an_event_published_again_gets_the_first_response(db: Db) -> None:
    scene = await Scene(db).begin()
    first = scene.make.event(scene.sub, key="a")
    await scene.publish([first])
    again = scene.make.event(scene.sub, scene.sub, key="a")

    assert await scene.publish([again]) == [[Receipt("a", 1, new=False)]]

    assert await count(db, "event") == 1
    assert await count(db, "pending") == 1


async def test_another_event_with_the_same_id_refuses_its_whole_request(db: Db) -> None:
    scene = await Scene(db).begin()
    await scene.publish([scene.make.event(key="b")])
    good, bad = scene.make.event(key="a"), scene.make.event(key="b", data=b"2")
    other = scene.make.event(key="c")

    replies = await scene.publish([good, bad], [other])

    assert replies == [Refusal((1,)), [Receipt("c", 0, new=True)]]
    assert [row[1] for row in await every(db, "event_key")] == ["b", "c"]


async def test_requests_of_one_group_see_each_other(db: Db) -> None:
    scene = await Scene(db).begin()
    first = scene.make.event(scene.sub, key="a")
    same = scene.make.event(scene.sub, key="a")
    other = scene.make.event(key="a", data=b"2")

    replies = await scene.publish([first], [same], [other])

    assert replies == [
        [Receipt("a", 1, new=True)],
        [Receipt("a", 1, new=False)],
        Refusal((0,)),
    ]
    assert await count(db, "pending") == 1


async def test_a_refused_request_does_not_speak_for_a_later_one(db: Db) -> None:
    scene = await Scene(db).begin()
    await scene.publish([scene.make.event(key="b")])
    refused = [scene.make.event(key="a"), scene.make.event(key="b", data=b"2")]
    later = scene.make.event(key="a", data=b"3")

    replies = await scene.publish(refused, [later])

    assert replies == [Refusal((1,)), [Receipt("a", 0, new=True)]]


async def test_one_id_in_two_tenants_is_two_events(db: Db) -> None:
    scene = await Scene(db).begin()
    one, other = scene.make.event(key="a"), scene.make.event(key="a", tenant="other", data=b"2")

    replies = await scene.publish([one], [other])

    assert replies == [[Receipt("a", 0, new=True)], [Receipt("a", 0, new=True)]]


async def test_a_large_batch_is_written_like_a_small_one(db: Db) -> None:
    scene = await Scene(db).begin()
    events = [scene.make.event(scene.sub) for _ in range(500)]

    (receipts,) = await scene.publish(events)

    assert isinstance(receipts, list)
    assert len(receipts) == 500
    assert await every(db, "pending") == [rows.pending_row(it) for it in scene.stored(*events)]
    assert await every(db, "event") == [rows.event_row(new)[:-1] for new in events]


async def test_data_comes_back_byte_for_byte(db: Db) -> None:
    scene = await Scene(db).begin()
    data = '{"a" : "\\u0000\u00e9\U0001f600", "b":1.0}'.encode() + b" "
    await scene.publish([scene.make.event(scene.sub, data=data)])

    reply = await scene.due()

    assert reply.fresh[0].event.data == data


async def test_a_group_of_duplicates_writes_nothing(db: Db) -> None:
    scene = await Scene(db).begin()
    event = scene.make.event(scene.sub, key="a")
    await scene.publish([event])
    marks = await every(db, "ledger")

    await scene.publish([event], [event])

    assert await every(db, "ledger") == marks


async def test_of_two_processes_with_one_id_one_writes_it(db: Db) -> None:
    scene = await Scene(db).begin()
    other = Flow(db, node=1)
    maker = Maker(now=scene.make.now + 1_000)
    for turn in range(10):
        keys = [f"{turn}-{n}" for n in range(20)]
        mine = [scene.make.event(scene.sub, key=key) for key in keys]
        theirs = [
            replace(new, event=replace(new.event, id=maker.id()), deliveries=())
            for new in reversed(mine)
        ]
        (ours,), there = await asyncio.gather(
            scene.publish(mine),
            other.publish([theirs], number=turn),
        )
        told = []
        for receipts in (ours, *there.results):
            assert isinstance(receipts, list)
            told += [it.new for it in receipts]
        assert sorted(told) == [False] * 20 + [True] * 20

    assert await count(db, "event") == 200
