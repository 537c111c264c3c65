"""Retention removes old rows in bounded steps and keeps those that are needed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from homing.errors import NotFound
from homing.model import Lane
from homing.ports import Receipt, SettleBatch
from homing.store.admin import Admin
from homing.store.flow import Flow
from homing.store.partitions import DAY_MS, ensure_days
from homing.store.postgres import PostgresDb
from homing.store.tx import Db
from store.build import NOW, put
from store.scene import Scene, count, every

LATER = NOW + 40 * DAY_MS


async def sweep(flow: Flow, *, before: int, limit: int = 100) -> int:
    """Call retention until it removes nothing."""
    removed = 0
    for _ in range(100):
        step = await flow.remove_history(before=before, limit=limit)
        removed += step
        if not step:
            return removed
    raise AssertionError("it never ends")


async def finish(scene: Scene, count: int, *, at: int = NOW) -> list[int]:
    deliveries = await scene.deliver(count)
    await scene.flow.settle(
        SettleBatch(
            number=scene.number(),
            finished=tuple(scene.make.finished(it, at=at) for it in deliveries),
            attempts=tuple(scene.make.attempt(it) for it in deliveries),
        )
    )
    return [it.id for it in deliveries]


async def test_what_finished_before_goes_with_attempts_events_and_keys(db: Db) -> None:
    scene = await Scene(db).begin()
    await finish(scene, 25)
    scene.make.now = LATER
    kept = await finish(scene, 3, at=LATER)

    assert await sweep(scene.flow, before=LATER, limit=10) >= 50

    assert [row[0] for row in await every(db, "history")] == kept
    assert [row[0] for row in await every(db, "attempt")] == kept
    assert await count(db, "event") == 3
    assert await count(db, "event_key") == 3
    assert await count(db, "endpoint") == 1


async def test_a_step_is_bounded(db: Db) -> None:
    scene = await Scene(db).begin()
    await finish(scene, 50)

    await scene.flow.remove_history(before=LATER, limit=10)

    assert await count(db, "history") == 40
    assert await count(db, "event") == 40


async def test_an_event_stays_while_a_delivery_or_a_replay_of_it_is_pending(db: Db) -> None:
    scene = await Scene(db).begin()
    old = scene.make.event(scene.sub)
    await scene.publish([old])
    await scene.flow.settle(
        SettleBatch(number=2, finished=(scene.make.finished(old.deliveries[0]),))
    )
    replay = scene.make.delivery(old.event, scene.sub, replay_of=old.deliveries[0])
    await Admin(db).replay(old.deliveries[0].id, new=replay)
    waiting = scene.make.event(scene.sub)
    await scene.publish([waiting])

    await sweep(scene.flow, before=LATER)
    assert {row[0] for row in await every(db, "event")} == {old.event.id, waiting.event.id}

    await Admin(db).cancel_delivery(replay.id, now=NOW)
    await sweep(scene.flow, before=LATER)
    assert {row[0] for row in await every(db, "event")} == {waiting.event.id}
    assert await count(db, "replay_link") == 0


async def test_a_delivery_that_finished_late_stays_until_its_time(db: Db) -> None:
    scene = await Scene(db).begin()
    late = await finish(scene, 30, at=LATER)
    await finish(scene, 5)

    await sweep(scene.flow, before=LATER, limit=4)
    assert [row[0] for row in await every(db, "history")] == late

    await sweep(scene.flow, before=LATER + 1, limit=4)
    assert await count(db, "history") == 0
    assert await count(db, "attempt") == 0


async def test_an_id_becomes_free_with_its_event(db: Db) -> None:
    scene = await Scene(db).begin()
    await scene.publish([scene.make.event(key="a")])
    await sweep(scene.flow, before=LATER)

    replies = await scene.publish([scene.make.event(key="a", data=b"2")])

    assert replies == [[Receipt("a", 0, new=True)]]


async def test_test_sends_and_transitions_go_too(db: Db) -> None:
    scene = await Scene(db).begin()
    (pending,) = await scene.deliver(1)
    test = scene.make.delivery(scene.make.event().event, scene.sub)
    await Admin(db).log_test(replace(scene.make.attempt(test), lane=Lane.TEST))
    await scene.flow.settle(
        SettleBatch(
            number=1,
            waiting=(replace(pending, attempts=1),),
            attempts=(scene.make.attempt(pending),),
            transitions=(scene.make.transition(scene.endpoint),),
        )
    )

    await sweep(scene.flow, before=LATER)

    assert [row[0] for row in await every(db, "attempt")] == [pending.id]
    assert await count(db, "transition") == 0


async def test_a_deleted_subscription_goes_and_its_endpoint_after_it(db: Db) -> None:
    scene = await Scene(db).begin()
    kept = scene.make.endpoint("https://kept.example/")
    await put(db, endpoints=[kept], subscriptions=[scene.make.subscription(kept)])
    admin = Admin(db)
    await admin.delete_subscription(scene.sub.id, now=NOW, cleanup_job_id=scene.make.id())

    await sweep(scene.flow, before=LATER)
    assert await count(db, "subscription") == 2, "its cleanup job is not done yet"

    (cleanup_job,) = await admin.cleanup_jobs()
    await admin.run_cleanup_job(cleanup_job, target=None, except_ids=frozenset(), now=NOW, limit=10)
    await sweep(scene.flow, before=NOW)
    assert await count(db, "endpoint") == 2, "an endpoint outlives its subscriptions"

    await sweep(scene.flow, before=LATER)
    assert [row[0] for row in await every(db, "endpoint")] == [kept.id]
    with pytest.raises(NotFound):
        await admin.delete_subscription(scene.sub.id, now=NOW, cleanup_job_id=1)


async def test_days_go_as_a_whole_when_nothing_in_them_is_needed(db: Db) -> None:
    if not isinstance(db, PostgresDb):
        return
    scene = await Scene(db).begin()
    for day in range(0, 5, 2):
        await ensure_days(db, NOW + day * DAY_MS)
    await finish(scene, 5)  # day 0: goes
    scene.make.now += DAY_MS
    late = await finish(scene, 5, at=LATER)  # day 1: history stays, events go
    scene.make.now += DAY_MS
    (pending,) = await scene.deliver(1)  # day 2: all stays
    scene.make.now += DAY_MS
    await finish(scene, 5)  # day 3: goes
    today = NOW // DAY_MS
    assert f"history_d{today}" in await parts(db)

    await sweep(scene.flow, before=LATER, limit=2)

    left = {int(name.split("_d")[1]) - today for name in await parts(db) if "_default" not in name}
    assert {day for day in left if 0 <= day < 5} == {1, 2}
    assert [row[0] for row in await every(db, "history")] == late
    assert await count(db, "attempt") == 5
    assert [row[0] for row in await every(db, "event")] == [pending.event_id]
    assert await count(db, "event_key") == 1


async def parts(db: PostgresDb) -> list[str]:
    find = (
        "SELECT relname FROM pg_class"
        " WHERE relispartition AND relkind = 'r' AND pg_table_is_visible(oid)"
    )
    found = await db.raw(lambda execute: execute(find))
    return [row[0] for row in found]


async def test_a_day_whose_rows_lie_in_the_default_part_stays_there(db: Db) -> None:
    if not isinstance(db, PostgresDb):
        return
    scene = await Scene(db).begin()
    await finish(scene, 3)

    await ensure_days(db, NOW)
    await ensure_days(db, NOW)

    names = await parts(db)
    today = NOW // DAY_MS
    assert f"event_d{today}" not in names
    assert f"event_d{today + 1}" in names
    await sweep(scene.flow, before=LATER)
    assert await count(db, "history") == 0


async def test_replay_jobs_go_when_what_they_replayed_is_gone_but_a_running_one_stays(
    db: Db,
) -> None:
    scene = await Scene(db).begin()
    admin, make = Admin(db), scene.make
    running, done = make.job(), replace(make.job(), state="done")
    make.now = LATER
    young = replace(make.job(), state="done")
    for number, job in enumerate((running, done, young)):  # Equal ones are refused.
        asked = replace(job.filter, until=number)
        await admin.save_replay_job(replace(job, filter=asked))

    await sweep(scene.flow, before=NOW + DAY_MS)

    assert {row[0] for row in await every(db, "replay_job")} == {running.id, young.id}


async def sweep_of(flow: Flow, tenant: str, *, before: int, limit: int = 10) -> int:
    """Run the retention of one tenant to its end."""
    removed, after_key = 0, ""
    while True:
        step, on_after = await flow.remove_history_of(
            tenant, before=before, after_key=after_key, limit=limit
        )
        removed += step
        if on_after is None:
            return removed
        after_key = on_after


async def test_a_tenants_own_retention_removes_its_old_events_and_those_of_nobody_else(
    db: Db,
) -> None:
    scene = await Scene(db).begin()
    old = await finish(scene, 25)
    (pending,) = await scene.deliver(1)
    late = await finish(scene, 1, at=NOW + 10 * DAY_MS)
    unmatched = scene.make.event(key="unmatched")
    neighbour = scene.make.event(tenant="neighbour", key="theirs")
    await scene.publish([unmatched, neighbour])
    scene.make.now = LATER
    young = await finish(scene, 3, at=LATER)
    assert await scene.flow.next_tenant("") == "acme"
    assert await scene.flow.next_tenant("acme") == "neighbour"
    assert await scene.flow.next_tenant("neighbour") is None

    assert await sweep_of(scene.flow, "acme", before=NOW + 5 * DAY_MS) == 26

    assert [row[0] for row in await every(db, "history")] == [*late, *young]
    assert [row[0] for row in await every(db, "attempt")] == [*late, *young]
    assert [row[0] for row in await every(db, "pending")] == [pending.id]
    assert await count(db, "event") == 1 + 1 + 3 + 1
    assert await count(db, "event_key") == 6
    assert old
    again = scene.make.event(key="unmatched")
    (results,) = await scene.publish([again])
    assert results == [Receipt("unmatched", 0, new=True)]
