"""A replay job takes exactly the finished deliveries that the list of the same conditions shows."""

from __future__ import annotations

import pytest
from msgspec.structs import asdict, replace

from homing.model import Delivery, Reason, Status
from homing.ports import DeliveryFilter, ReplayFilter
from homing.store.admin import Admin
from homing.store.tx import Db
from store.build import HOUR, NOW
from store.test_view_deliveries import Scene, all_conditions

SINGLE = 21  # conditions that stand first
LATER = NOW + 100 * HOUR  # all have finished


def job_filter(conditions: DeliveryFilter, *, as_of: int | None = None) -> ReplayFilter:
    given = {name: it for name, it in asdict(conditions).items() if name != "expires_before"}
    return ReplayFilter(**given, as_of=as_of)


async def taken(
    scene: Scene, conditions: ReplayFilter, *, limit: int, now: int = LATER
) -> list[int]:
    """The ids of the deliveries that a job takes, step by step."""
    admin: Admin = scene.admin
    job, ids = scene.make.job(conditions), list[int]()
    while True:
        found, upto, done = await admin.candidates(job, now=now, limit=limit)
        ids += [it.delivery.id for it in found]
        if done:
            break
        assert upto > job.after_id
        job = replace(job, after_id=upto)
    job = scene.make.job(conditions)
    count, exact = await admin.count_replay(job, now=now, limit=10_000)
    assert (count, exact) == (len(ids), True)
    return ids


async def finished(scene: Scene, conditions: DeliveryFilter) -> list[int]:
    """The ids of the finished deliveries that the list shows, oldest first."""
    rows = await scene.walk(conditions, limit=50)
    return [row.delivery.id for row in rows if row.status is not Status.PENDING][::-1]


@pytest.mark.parametrize(("limit", "every"), [(9, 23), (1_000, 5)])
async def test_the_job_of_many_pairs_of_conditions_takes_what_its_list_shows(
    db: Db, limit: int, every: int
) -> None:
    """Each condition alone, and some pairs of them."""
    scene = await Scene(db).build()
    wanted = [it for it in all_conditions(scene) if it.expires_before is None]
    seen = 0
    for conditions in (*wanted[:SINGLE], *wanted[SINGLE::every]):
        shown = await finished(scene, conditions)
        assert await taken(scene, job_filter(conditions), limit=limit) == shown, conditions
        seen += bool(shown)
    assert seen > 20


async def test_the_moments_at_the_bounds_belong_to_the_same_side_in_both(db: Db) -> None:
    scene = await Scene(db).build()
    times = sorted({row.delivery.accepted_at for row in scene.rows})
    for at in (times[0], times[len(times) // 2], times[-1]):
        for near in (at - 1, at, at + 1):
            for conditions in (DeliveryFilter(since=near), DeliveryFilter(until=near)):
                shown = await finished(scene, conditions)
                assert await taken(scene, job_filter(conditions), limit=7) == shown
    first = DeliveryFilter(since=times[0], until=times[0])
    assert await taken(scene, job_filter(first), limit=7) == []


async def test_what_finished_at_the_given_moment_is_taken(db: Db) -> None:
    scene = await Scene(db).build()
    times = sorted({row.finished_at for row in scene.rows if row.finished_at is not None})
    assert times
    for at in (times[0], times[-1]):
        for near in (at - 1, at, at + 1):
            conditions = DeliveryFilter(finished_since=near)
            shown = await finished(scene, conditions)
            assert await taken(scene, job_filter(conditions), limit=7) == shown
            wanted = [it for it in scene.rows if it.finished_at and it.finished_at >= near]
            assert len(shown) == len(wanted)


async def test_what_finishes_after_the_list_was_seen_is_left_out(db: Db) -> None:
    scene = await Scene(db).build()
    as_of = scene.make.now
    seen = await finished(scene, DeliveryFilter())
    pending = [row.delivery for row in scene.rows if row.status is Status.PENDING]
    late: Delivery = pending[0]
    await scene.admin.cancel_delivery(late.id, now=as_of + 1)
    assert late.id in await finished(scene, DeliveryFilter())
    assert await taken(scene, job_filter(DeliveryFilter(), as_of=as_of), limit=7) == seen
    later = await taken(scene, job_filter(DeliveryFilter(), as_of=as_of + 1), limit=7)
    assert later == await finished(scene, DeliveryFilter())


async def test_what_finished_under_a_clock_that_was_ahead_is_not_left_out(db: Db) -> None:
    """The list shows it: its time has not come yet, so it cannot have finished since."""
    scene = await Scene(db).build()
    now = min(it.finished_at for it in scene.rows if it.finished_at is not None)
    seen = await finished(scene, DeliveryFilter())
    for as_of in (now - 1, now):
        conditions = job_filter(DeliveryFilter(), as_of=as_of)
        assert await taken(scene, conditions, limit=7, now=as_of) == seen


async def test_the_replays_of_an_event_are_taken_with_it(db: Db) -> None:
    scene = await Scene(db).build()
    old = next(row for row in scene.rows if row.reason is Reason.EXPIRED)
    for number in range(5):
        fresh = replace(old.delivery, id=scene.make.id())
        made = await scene.admin.replay(old.delivery.id, new=fresh)
        if number != 2:
            await scene.admin.cancel_delivery(made.id, now=NOW + 90 * HOUR)
    conditions = DeliveryFilter(event_id=old.delivery.event_id)
    shown = await finished(scene, conditions)
    assert len(shown) >= 5
    for limit in (1, 2, 100):
        assert await taken(scene, job_filter(conditions), limit=limit) == shown
