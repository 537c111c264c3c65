"""The clock mark in every store, and stored times that are moved in bounded steps."""

from __future__ import annotations

from msgspec.structs import replace

from homing.ports import ClockMark, ClockReading, Move
from homing.store import rows
from homing.store.clock_marks import ClockMarks
from homing.store.tx import Db
from store.build import HOUR, NOW, Maker, put
from store.scene import every

DAY = 24 * HOUR
BACK = Move(by_ms=-DAY, from_ms=NOW)
READING = ClockReading(NOW, NOW - DAY, NOW - HOUR, "a kernel", 77, synchronised=True, apart=True)
MARK = ClockMark(READING, NOW - HOUR)


async def test_a_new_store_has_no_mark_and_then_the_last_one(db: Db) -> None:
    store = ClockMarks(db)
    assert await store.clock_mark() == (None, 0)
    assert await store.begin_clock(MARK, None, seen=None)
    assert await store.clock_mark() == (MARK, 0)
    later = ClockReading(NOW + 7, NOW + 9, NOW + 8)
    await store.mark_clock(later)
    assert await store.clock_mark() == (ClockMark(later, MARK.since_ms), 0)


async def test_of_two_that_begin_at_once_one_is_told_to_look_again(db: Db) -> None:
    store = ClockMarks(db)
    assert await store.begin_clock(MARK, BACK, seen=None)
    later = replace(MARK, reading=replace(READING, steady_ms=NOW + 1))
    assert not await store.begin_clock(later, None, seen=None)
    assert not await store.begin_clock(later, None, seen=MARK), "times are still being moved"
    assert await store.move_times(limit=10) == 0
    assert await store.begin_clock(later, None, seen=MARK)


async def test_times_from_there_on_are_moved_and_the_others_are_left(db: Db) -> None:
    make, store = Maker(), ClockMarks(db)
    old = replace(make.endpoint("https://old.example/"), hold_until=0)
    old = replace(old, health=replace(old.health, since=NOW - 5, enabled_since=NOW - 5))
    new = make.endpoint("https://new.example/")
    new = replace(
        new,
        next_probe_at=NOW + HOUR,
        hold_until=NOW + 9,
        dropped_reported_at=NOW + 1,
        health=replace(
            new.health, first_attempt_at=NOW + 2, last_success_at=NOW - 3, manual_enable_at=None
        ),
    )
    sub = make.subscription(new)
    events = [make.event(sub) for _ in range(6)]
    first, tried, before, put_off, held, mixed = (it.deliveries[0] for it in events)
    tried = replace(tried, t0=NOW + 4, due_at=NOW + HOUR, expires_at=NOW + DAY, attempts=1)
    before = replace(before, accepted_at=NOW - 9, t0=NOW - 4, due_at=NOW + HOUR, attempts=1)
    put_off = replace(put_off, accepted_at=NOW - 9, due_at=NOW + 60, attempts=1, sender_errors=1)
    held = replace(held, accepted_at=NOW - 9, due_at=NOW - 9)
    mixed = replace(mixed, accepted_at=NOW - 9, t0=NOW + 1, due_at=NOW + 2, attempts=1)
    waiting = [first, tried, before, put_off, held, mixed]
    told = [replace(it, deliveries=(one,)) for it, one in zip(events, waiting, strict=True)]
    await put(db, endpoints=[old, new], subscriptions=[sub], events=told)
    await store.begin_clock(MARK, BACK, seen=None)
    steps = 0
    while await store.move_times(limit=2):
        steps += 1
    assert steps == 4, "one for the endpoints, three for the deliveries"
    moved = {
        first.id: (NOW - DAY, NOW - DAY, first.expires_at - DAY, None),
        tried.id: (NOW - DAY, NOW + HOUR - DAY, NOW, NOW + 4 - DAY),
        before.id: (NOW - 9, NOW + HOUR, before.expires_at, NOW - 4),
        put_off.id: (NOW - 9, NOW + 60 - DAY, put_off.expires_at, None),
        held.id: (NOW - 9, NOW - 9, held.expires_at, None),
        mixed.id: (NOW - 9, NOW + 2 - DAY, mixed.expires_at - DAY, NOW + 1 - DAY),
    }
    for row in await every(db, "pending"):
        it = rows.pending(row)
        assert (it.accepted_at, it.due_at, it.expires_at, it.t0) == moved[it.id]
    kept, there = (rows.endpoint(row) for row in await every(db, "endpoint"))
    assert kept == old
    assert there == replace(
        new,
        next_probe_at=NOW + HOUR - DAY,
        hold_until=NOW + 9 - DAY,
        dropped_reported_at=NOW + 1 - DAY,
        health=replace(
            new.health,
            since=NOW - DAY,
            enabled_since=NOW - DAY,
            first_attempt_at=NOW + 2 - DAY,
        ),
    )


async def test_when_a_delivery_was_unblocked_is_moved_with_the_window_that_began_then(
    db: Db,
) -> None:
    make, store = Maker(), ClockMarks(db)
    endpoint = make.endpoint("https://new.example/")
    sub = make.subscription(endpoint)
    events = [make.event(sub) for _ in range(3)]
    freed, after_drop, before = (it.deliveries[0] for it in events)
    freed = replace(freed, order_key="x", accepted_at=NOW - 9, due_at=NOW + 5)
    freed = replace(freed, unblocked_at=NOW + 5)
    after_drop = replace(
        after_drop, order_key="x", accepted_at=NOW - 9, due_at=NOW + 6, unblocked_at=-NOW - 6
    )
    before = replace(
        before, order_key="x", accepted_at=NOW - 9, due_at=NOW - 5, unblocked_at=NOW - 5
    )
    waiting = [freed, after_drop, before]
    told = [replace(it, deliveries=(one,)) for it, one in zip(events, waiting, strict=True)]
    await put(db, endpoints=[endpoint], subscriptions=[sub], events=told)
    await store.begin_clock(MARK, BACK, seen=None)
    while await store.move_times(limit=2):
        pass
    moved = {
        freed.id: (NOW + 5 - DAY, NOW + 5 - DAY, freed.expires_at - DAY),
        after_drop.id: (-NOW - 6 + DAY, NOW + 6 - DAY, after_drop.expires_at - DAY),
        before.id: (NOW - 5, NOW - 5, before.expires_at),
    }
    for row in await every(db, "pending"):
        it = rows.pending(row)
        assert (it.unblocked_at, it.due_at, it.expires_at) == moved[it.id]


async def test_a_move_that_was_interrupted_goes_on_and_moves_nothing_twice(db: Db) -> None:
    make = Maker()
    endpoint = make.endpoint()
    sub = make.subscription(endpoint)
    events = [make.event(sub) for _ in range(5)]
    await put(db, endpoints=[endpoint], subscriptions=[sub], events=events)
    await ClockMarks(db).begin_clock(MARK, BACK, seen=None)
    for left in (1, 2, 2, 1, 0, 0):  # Each time as another process.
        assert await ClockMarks(db).move_times(limit=2) == left
    due = {rows.pending(row).due_at for row in await every(db, "pending")}
    assert due == {NOW - DAY}


async def test_the_newest_event_is_told_with_the_mark(db: Db) -> None:
    make = Maker(now=NOW + 5)
    await put(db, events=[make.event(), make.event()])
    assert await ClockMarks(db).clock_mark() == (None, NOW + 5)
