"""The rows of an endpoint where some subscriptions are paused: theirs are left out, in pages."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from homing.model import Delivery, Pauses, State, Subscription, Work
from homing.ports import ClockMark, ClockReading, DueAsk, DueRows, Move, Place, Source
from homing.store import unpaused
from homing.store.admin import Admin
from homing.store.clock_marks import ClockMarks
from homing.store.tx import Db
from homing.store.views import Views
from store.build import HOUR, NOW, put
from store.scene import Scene


def ids(works: tuple[Work, ...]) -> list[int]:
    return [it.delivery.id for it in works]


class Shared(Scene):
    """An endpoint with two subscriptions, of which the second is paused."""

    async def begin(self) -> Shared:
        await super().begin()
        self.slow: Subscription = self.make.subscription(self.endpoint)
        await put(self.db, subscriptions=[self.slow])
        return self

    async def one(self, sub: Subscription) -> Delivery:
        new = self.make.event(sub)
        await self.publish([new])
        self.make.now += 1
        return self.stored(new)[0]

    async def ask(
        self, seen: dict[Source, Place] | None = None, *, fresh: int = 10, retry: int = 10
    ) -> DueRows:
        ask = DueAsk(
            self.endpoint.id,
            NOW,
            fresh,
            retry,
            self.endpoint.bucket,
            paused=frozenset({self.slow.id}),
            seen=seen or {},
        )
        (reply,) = await self.flow.due([ask], now=NOW + HOUR)
        return reply


async def test_rows_of_a_paused_subscription_are_left_out_in_both_lanes(db: Db) -> None:
    scene = await Shared(db).begin()
    rows = [await scene.one(sub) for sub in (scene.slow, scene.sub, scene.slow, scene.sub)]
    await scene.tried(rows[0], due_at=NOW + 5)
    await scene.tried(rows[1], due_at=NOW + 9)

    reply = await scene.ask()

    assert ids(reply.fresh) == [rows[3].id]
    assert ids(reply.retry) == [rows[1].id]
    assert not reply.more_fresh
    assert reply.next_due is None


async def test_the_next_request_continues_where_the_last_one_stopped(
    db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpaused, "PAGE", 2)
    monkeypatch.setattr(unpaused, "PAGES_MAX", 3)
    scene = await Shared(db).begin()
    for _ in range(9):
        await scene.one(scene.slow)
    wanted = await scene.one(scene.sub)
    seen: dict[Source, Place] = {}
    found: list[int] = []
    for _ in range(4):
        reply = await scene.ask(seen)
        found += ids(reply.fresh)
        seen = dict(reply.seen)
        if not reply.more_fresh:
            break
    assert found == [wanted.id]
    assert await scene.ask(seen) == replace(reply, fresh=())
    later = await scene.one(scene.sub)
    assert ids((await scene.ask(seen)).fresh) == [later.id]


async def test_a_row_that_was_not_taken_is_read_again(db: Db) -> None:
    scene = await Shared(db).begin()
    rows = [await scene.one(sub) for sub in (scene.slow, scene.sub, scene.sub, scene.slow)]

    first = await scene.ask(fresh=1)
    assert ids(first.fresh) == [rows[1].id]
    assert first.more_fresh
    second = await scene.ask(dict(first.seen), fresh=1)
    assert ids(second.fresh) == [rows[2].id]
    assert not second.more_fresh


async def test_a_row_that_is_due_later_says_when(db: Db) -> None:
    scene = await Shared(db).begin()
    first = await scene.one(scene.sub)
    await scene.tried(first, due_at=NOW + 2 * HOUR)
    reply = await scene.ask()
    assert reply.retry == ()
    assert reply.next_due == NOW + 2 * HOUR


async def test_endpoints_without_paused_subscriptions_are_read_as_ever(db: Db) -> None:
    scene = await Shared(db).begin()
    row = await scene.one(scene.sub)
    plain = DueAsk(scene.endpoint.id, NOW, 10, 10, scene.endpoint.bucket)
    both = [plain, replace(plain, paused=frozenset({scene.sub.id}))]
    first, second = await scene.flow.due(both, now=NOW + HOUR)
    assert ids(first.fresh) == [row.id]
    assert first.seen == {}
    assert second.fresh == ()


@pytest.mark.parametrize("tried", [False, True])
async def test_a_probe_takes_no_row_of_a_paused_subscription(
    db: Db, monkeypatch: pytest.MonkeyPatch, tried: bool
) -> None:
    monkeypatch.setattr(unpaused, "PAGE", 2)
    monkeypatch.setattr(unpaused, "PAGES_MAX", 2)
    scene = await Shared(db).begin()
    rows = [await scene.one(scene.slow) for _ in range(7)]
    wanted = await scene.one(scene.sub)
    if tried:
        for row in (*rows, wanted):
            await scene.tried(row, due_at=NOW + 5)
    health = replace(scene.endpoint.health, state=State.DISABLED)
    endpoint = replace(scene.endpoint, health=health, next_probe_at=NOW)
    paused = frozenset({scene.slow.id})
    seen: dict[Source, Place] = {}
    for _ in range(12):
        taken = await scene.flow.take_unpaused_probe(
            endpoint,
            next_probe_at=NOW + HOUR,
            now=NOW + 1,
            skip_expired=True,
            paused=paused,
            seen=seen,
        )
        seen = dict(taken.seen)
        if not taken.more:
            break
    assert taken.work is not None
    assert taken.work.delivery.id == wanted.id

    nothing = await scene.flow.take_unpaused_probe(
        endpoint,
        next_probe_at=NOW + HOUR,
        now=NOW + 1,
        skip_expired=True,
        paused=frozenset({scene.slow.id, scene.sub.id}),
        seen={},
    )
    while nothing.more:
        nothing = await scene.flow.take_unpaused_probe(
            endpoint,
            next_probe_at=NOW + HOUR,
            now=NOW + 1,
            skip_expired=True,
            paused=frozenset({scene.slow.id, scene.sub.id}),
            seen=nothing.seen,
        )
    assert nothing.work is None


async def test_old_rows_are_read_by_id(db: Db) -> None:
    scene = await Shared(db).begin()
    rows = [await scene.one(scene.slow) for _ in range(4)]
    found = await scene.flow.older(
        scene.endpoint.id,
        bucket=scene.endpoint.bucket,
        after_id=rows[0].id,
        before_id=rows[3].id,
        limit=10,
    )
    assert found == rows[1:3]


async def test_a_row_keeps_by_how_much_it_was_moved(db: Db) -> None:
    scene = await Scene(db).begin()
    (row,) = await scene.deliver(1)
    await scene.rewrite(replace(row, paused_ms=5_000_000_000))
    views = Views(db)
    shown = await views.delivery(row.id)
    assert shown is not None
    assert shown.delivery.paused_ms == 5_000_000_000
    assert not shown.arrived
    assert (await scene.due()).fresh[0].delivery.paused_ms == 5_000_000_000


async def test_the_pauses_of_a_subscription_are_kept_and_move_with_the_clock(db: Db) -> None:
    scene = await Scene(db).begin()
    admin, clock = Admin(db), ClockMarks(db)
    pauses = Pauses(NOW + 9_000, ((NOW, NOW + 5_000),))
    await admin.change_subscription(
        replace(scene.sub, pauses=pauses), endpoint=scene.endpoint, cleanup_job_id=1
    )
    (kept,) = await admin.subscriptions_since(0)
    assert kept.pauses == pauses
    seen, _ = await clock.clock_mark()
    await clock.begin_clock(ClockMark(ClockReading(NOW, NOW, NOW), 0), Move(-1_000, NOW), seen=seen)
    while await clock.move_times(limit=10):
        pass
    (after,) = await admin.subscriptions_since(0)
    assert after.pauses == Pauses(NOW + 8_000, ((NOW - 1_000, NOW + 4_000),))
