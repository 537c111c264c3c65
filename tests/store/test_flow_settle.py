"""Settling writes all changes of a batch of outcomes, or none."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from homing.errors import StaleEndpoints
from homing.model import Decided, Delivery, Lane, Reason, State, Status, id_floor
from homing.ports import SettleBatch
from homing.store import rows
from homing.store.admin import Admin
from homing.store.flow import Flow
from homing.store.tx import Db
from homing.store.views import Views
from store.build import NOW, put
from store.scene import Scene, count, every, every_attempt


def waiting(delivery: Delivery) -> Delivery:
    return replace(delivery, due_at=NOW + 84_800, t0=NOW, retry=1, attempts=1)


async def test_a_finished_delivery_leaves_pending_for_history(db: Db) -> None:
    scene = await Scene(db).begin()
    done, left = await scene.deliver(2)
    finished = scene.make.finished(done)
    attempt = scene.make.attempt(done)

    result = await scene.flow.settle(
        SettleBatch(number=1, finished=(finished,), attempts=(attempt,))
    )

    assert result.gone == frozenset()
    assert await every(db, "pending") == [rows.pending_row(left)]
    (kept,) = [rows.history(row) for row in await every(db, "history")]
    assert kept == replace(finished, delivery=replace(done, position=0))
    assert await every_attempt(db) == [attempt]


async def test_an_attempt_that_succeeded_at_once_is_kept_in_history(db: Db) -> None:
    scene = await Scene(db).begin()
    deliveries = await scene.deliver(5)
    at_once, tried, probed, late, cancelled = map(scene.make.delivered, deliveries)
    attempts = (
        replace(at_once, detail="a\0b"),
        replace(tried, number=2),
        replace(probed, lane=Lane.PROBE),
        replace(late, finished_at=late.finished_at + 1),
        cancelled,
    )
    await Admin(db).cancel_delivery(deliveries[-1].id, now=NOW)

    finished = tuple(scene.make.finished(it) for it in deliveries)
    result = await scene.flow.settle(SettleBatch(number=1, finished=finished, attempts=attempts))

    assert result.gone == {deliveries[-1].id}
    stored = [rows.attempt(row) for row in await every(db, "attempt")]
    assert stored == [*attempts[1:4], replace(cancelled, decided=Decided.CANCELLED)]
    kept = replace(at_once, detail="a\N{REPLACEMENT CHARACTER}b")
    assert await every_attempt(db) == [kept, *stored]
    views = Views(db)
    assert await views.attempts(at_once.delivery_id) == [kept]
    assert await views.attempts(tried.delivery_id) == [attempts[1]]
    keys = [(it.delivery_id, it.number) for it in attempts]
    assert await views.attempts_by_number(keys) == dict(zip(keys, [kept, *stored], strict=True))
    assert await views.attempts_by_number([(at_once.delivery_id, 2)]) == {}


async def test_the_guards_columns_are_written_only_for_the_endpoints_that_are_named(db: Db) -> None:
    scene = await Scene(db).begin()
    other = scene.make.endpoint("https://b.example/")
    await put(db, endpoints=[other])
    first, second = (
        replace(it, guard_passed=(1 << 56) + 5, guard_refused_at=NOW)
        for it in (scene.endpoint, other)
    )
    batch = SettleBatch(number=1, endpoints=(first, second), guarded=(first.id,))
    await scene.flow.settle(batch)

    views = Views(db)
    assert await views.endpoint(first.id) == first
    assert await views.endpoint(other.id) == other
    assert await views.refused_endpoints(since=NOW, limit=9) == [first]
    assert await views.refused_endpoints(since=NOW + 1, limit=9) == []
    passed = replace(first, guard_refused_at=0)
    await scene.flow.settle(SettleBatch(number=2, endpoints=(passed,), guarded=(first.id,)))
    assert await views.refused_endpoints(since=0, limit=9) == []


async def test_a_waiting_delivery_replaces_its_row(db: Db) -> None:
    scene = await Scene(db).begin()
    other = scene.make.endpoint("https://b.example/")
    await put(db, endpoints=[other])
    (delivery,) = await scene.deliver(1)
    moved = replace(waiting(delivery), endpoint_id=other.id, bucket=other.bucket, sender_errors=2)

    assert (await scene.flow.settle(SettleBatch(number=1, waiting=(moved,)))).gone == frozenset()

    assert [rows.pending(row) for row in await every(db, "pending")] == [moved]


async def test_a_row_that_has_been_attempted_since_is_not_put_back(db: Db) -> None:
    """A cleanup job moved it to another process's bucket while it was about to be moved here."""
    scene = await Scene(db).begin()
    (delivery,) = await scene.deliver(1)
    newer = waiting(delivery)
    assert (await scene.flow.settle(SettleBatch(number=1, waiting=(newer,)))).gone == frozenset()

    assert (await scene.flow.settle(SettleBatch(number=2, waiting=(delivery,)))).gone == {
        delivery.id
    }

    assert [rows.pending(row) for row in await every(db, "pending")] == [newer]


async def test_what_was_cancelled_meanwhile_stays_cancelled(db: Db) -> None:
    scene = await Scene(db).begin()
    arrived, failed, dropped = await scene.deliver(3)
    for delivery in (arrived, failed, dropped):
        await Admin(db).cancel_delivery(delivery.id, now=NOW)
    batch = SettleBatch(
        number=1,
        finished=(
            scene.make.finished(arrived),
            scene.make.finished(dropped, Status.DROPPED, Reason.EXHAUSTED),
        ),
        waiting=(waiting(failed),),
        attempts=tuple(scene.make.attempt(it) for it in (arrived, failed, dropped)),
    )

    result = await scene.flow.settle(batch)

    assert result.gone == {arrived.id, failed.id, dropped.id}
    history = [rows.history(row) for row in await every(db, "history")]
    assert [it.status for it in history] == [Status.CANCELLED] * 3
    assert [it.arrived for it in history] == [True, False, False]
    assert await count(db, "pending") == 0
    decided = [rows.attempt(row).decided for row in await every(db, "attempt")]
    assert decided == [Decided.CANCELLED] * 3


async def test_only_what_really_finished_is_in_the_ledger(db: Db) -> None:
    scene = await Scene(db).begin()
    deliveries = await scene.deliver(4)
    await Admin(db).cancel_delivery(deliveries[0].id, now=NOW)
    statuses = (Status.DELIVERED, Status.DELIVERED, Status.DROPPED, Status.CANCELLED)
    finished = [
        scene.make.finished(it, status) for it, status in zip(deliveries, statuses, strict=True)
    ]

    await scene.flow.settle(SettleBatch(number=1, finished=tuple(finished)))

    ledger = [row[2:] for row in await every(db, "ledger")]
    sums = [sum(column) for column in zip(*ledger, strict=True)]
    assert sums == [4, 1, 1, 2, 0]


async def test_an_endpoint_is_replaced_at_its_generation(db: Db) -> None:
    scene = await Scene(db).begin()
    health = replace(
        scene.endpoint.health, state=State.DISABLED, since=NOW + 5, failures=7, last_success_at=NOW
    )
    changed = replace(
        scene.endpoint,
        health=health,
        next_probe_at=NOW + 9,
        probe_after_id=3,
        hold_until=4,
        dropped_unreported=5,
        dropped_reported_at=6,
        rule="failure_rate",
    )
    transition = scene.make.transition(scene.endpoint, after=State.DISABLED)

    await scene.flow.settle(SettleBatch(number=1, endpoints=(changed,), transitions=(transition,)))

    assert [rows.endpoint(row) for row in await every(db, "endpoint")] == [changed]
    assert [rows.transition(row) for row in await every(db, "transition")] == [transition]


async def test_of_a_batch_on_old_knowledge_nothing_is_written(db: Db) -> None:
    scene = await Scene(db).begin()
    other = scene.make.endpoint("https://b.example/")
    await put(db, endpoints=[other])
    (delivery,) = await scene.deliver(1)
    await Admin(db).set_endpoint(scene.endpoint, seen=scene.endpoint, transition=None, notices=())
    before = [await every(db, table) for table in rows.COLUMNS]
    batch = SettleBatch(
        number=1,
        finished=(scene.make.finished(delivery),),
        attempts=(scene.make.attempt(delivery),),
        endpoints=(replace(other, rule="x"), scene.endpoint),
        notices=(scene.make.event(scene.sub),),
    )

    with pytest.raises(StaleEndpoints) as stale:
        await scene.flow.settle(batch)

    assert stale.value.endpoint_ids == {scene.endpoint.id}
    assert [await every(db, table) for table in rows.COLUMNS] == before


async def test_notices_are_published_with_their_deliveries(db: Db) -> None:
    scene = await Scene(db).begin()
    notice = scene.make.event(scene.sub, key="notice", kind="homing.endpoint.disabled")
    again = scene.make.event(scene.sub, key="notice", kind="homing.endpoint.disabled")

    await scene.flow.settle(SettleBatch(number=1, notices=(notice,)))
    await scene.flow.settle(SettleBatch(number=2, notices=(again,)))

    assert await every(db, "event") == [rows.event_row(notice)[:-1]]
    pending = [row[:-1] for row in await every(db, "pending")]
    assert pending == [rows.pending_row(it)[:-1] for it in notice.deliveries]


async def test_a_large_batch_is_settled_like_a_small_one(db: Db) -> None:
    scene = await Scene(db).begin()
    deliveries = await scene.deliver(300)
    batch = SettleBatch(
        number=1,
        finished=tuple(scene.make.finished(it) for it in deliveries[:150]),
        waiting=tuple(waiting(it) for it in reversed(deliveries[150:])),
        attempts=tuple(scene.make.attempt(it) for it in deliveries),
        endpoints=(scene.endpoint,),
    )

    assert (await scene.flow.settle(batch)).gone == frozenset()

    assert [row[0] for row in await every(db, "history")] == [it.id for it in deliveries[:150]]
    assert [rows.pending(row) for row in await every(db, "pending")] == [
        waiting(it) for it in deliveries[150:]
    ]
    assert await count(db, "attempt") == 300


async def test_text_that_a_database_cannot_hold_does_not_stop_a_batch(db: Db) -> None:
    scene = await Scene(db).begin()
    (delivery,) = await scene.deliver(1)
    attempt = replace(scene.make.attempt(delivery), detail="a\0b", excerpt=b"\0\xff")

    await scene.flow.settle(
        SettleBatch(number=1, waiting=(waiting(delivery),), attempts=(attempt,))
    )

    (row,) = await every(db, "attempt")
    assert rows.attempt(row).detail == "a\N{REPLACEMENT CHARACTER}b"
    assert rows.attempt(row).excerpt == b"\0\xff"


async def test_the_same_batch_again_is_answered_again_and_written_once(db: Db) -> None:
    scene = await Scene(db).begin()
    (delivery,) = await scene.deliver(1)
    batch = SettleBatch(
        number=7,
        finished=(scene.make.finished(delivery),),
        attempts=(scene.make.attempt(delivery),),
    )

    first = await scene.flow.settle(batch)

    assert await scene.flow.settle(batch) == first
    (ledger,) = await Views(db).ledger(tenant=None)
    assert (ledger.accepted, ledger.delivered, ledger.pending) == (1, 1, 0)


@pytest.mark.parametrize("store", ["sqlite-memory", "sqlite-file"], indirect=True)
async def test_numbers_of_batches_never_come_again_after_a_start(db: Db) -> None:
    scene = await Scene(db).begin()
    (delivery,) = await scene.deliver(1)
    number = id_floor(NOW + 5_000)
    await scene.flow.settle(SettleBatch(number=number, finished=(scene.make.finished(delivery),)))

    assert await Flow(db).last_id() >= number
