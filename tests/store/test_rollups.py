"""Counts per minute and hour: written with the outcomes, folded, and read for charts."""

from __future__ import annotations

from msgspec.structs import replace

from homing.model import Outcome, Phases, Reason, State, Status
from homing.ports import SettleBatch
from homing.ports.views import HOUR_MS, MINUTE_MS, EndpointSort, Rollup
from homing.store.rollups import MINUTES_KEPT_MS, gather
from homing.store.tx import Db
from homing.store.views import Views
from store.build import NOW, put
from store.scene import Scene, count

MINUTE = NOW - NOW % MINUTE_MS
TO = NOW + HOUR_MS


async def settled(scene: Scene, *, at: int = NOW) -> None:
    """Three delivered, one failed and one dropped."""
    rows = await scene.deliver(5)
    finished = [replace(scene.make.finished(it), finished_at=at) for it in rows[:3]]
    drop = scene.make.finished(rows[3], status=Status.DROPPED, reason=Reason.EXHAUSTED)
    attempts = [
        replace(
            scene.make.attempt(it),
            finished_at=at,
            outcome=Outcome.DELIVERED if number < 3 else Outcome.FAILED,
            phases=Phases(total_us=4_000 if number else 700_000),
        )
        for number, it in enumerate(rows)
    ]
    await scene.flow.settle(
        SettleBatch(
            number=scene.number(),
            finished=(*finished, replace(drop, finished_at=at)),
            waiting=(replace(rows[4], attempts=1, due_at=NOW + 9),),
            attempts=tuple(attempts),
            endpoints=(scene.endpoint,),
        )
    )


async def test_a_settle_counts_for_the_endpoint_the_tenant_and_all(db: Db) -> None:
    scene = await Scene(db).begin()
    await settled(scene)
    await settled(scene)
    views, tenant = Views(db), scene.endpoint.tenant
    (own,) = await views.rollups(endpoint_id=scene.endpoint.id, tenant=None, since=MINUTE, until=TO)
    assert (own.at, own.delivered, own.failed, own.sender_errors, own.dropped) == (
        MINUTE,
        6,
        4,
        0,
        2,
    )
    assert (own.took[1], own.took[7], sum(own.took)) == (8, 2, 10)
    for whose in (tenant, None):
        (all_,) = await views.rollups(endpoint_id=None, tenant=whose, since=MINUTE, until=TO)
        assert (all_.delivered, all_.failed, all_.dropped, sum(all_.took)) == (6, 4, 2, 6)
    assert await views.rollups(endpoint_id=None, tenant="other", since=0, until=TO) == []
    assert await count(db, "rollup") == 3


async def test_the_same_batch_again_counts_once(db: Db) -> None:
    scene = await Scene(db).begin()
    (row,) = await scene.deliver(1)
    batch = SettleBatch(
        number=scene.number(),
        finished=(scene.make.finished(row),),
        attempts=(replace(scene.make.attempt(row), outcome=Outcome.DELIVERED),),
        endpoints=(scene.endpoint,),
    )
    await scene.flow.settle(batch)
    await scene.flow.settle(batch)
    found = await Views(db).rollups(endpoint_id=None, tenant=None, since=MINUTE, until=TO)
    assert sum(it.delivered for it in found) == 1


async def test_old_minutes_become_hours_and_old_hours_go(db: Db) -> None:
    scene = await Scene(db).begin()
    hour = NOW - NOW % HOUR_MS
    for minute in (0, 7, 59):
        await settled(scene, at=hour + minute * MINUTE_MS)
    later = hour + HOUR_MS + MINUTES_KEPT_MS
    views = Views(db)

    async def seen() -> int:
        found = await views.rollups(endpoint_id=None, tenant=None, since=hour, until=later)
        return sum(it.delivered for it in found)

    assert await scene.flow.fold_rollups(now=later - 1, before=0, limit=100) == 0
    assert await seen() == 9
    assert await scene.flow.fold_rollups(now=later, before=0, limit=4) == 4
    assert await seen() == 9
    while await scene.flow.fold_rollups(now=later, before=0, limit=4):
        pass
    assert await seen() == 9
    assert (await count(db, "rollup"), await count(db, "rollup_hour")) == (0, 3)
    assert await scene.flow.fold_rollups(now=later, before=hour + 1, limit=100) == 3
    assert await seen() == 0


async def test_the_minutes_of_many_endpoints_are_read_together(db: Db) -> None:
    scene = await Scene(db).begin()
    await settled(scene)
    found = await Views(db).sparks([scene.endpoint.id, 5], since=MINUTE, until=TO)
    assert list(found) == [scene.endpoint.id]
    assert found[scene.endpoint.id][0].delivered == 3


def test_our_own_trouble_has_its_tenant_too() -> None:
    """Such a batch changes no endpoint: the waiting delivery names the tenant."""
    make = Scene.__new__(Scene)
    Scene.__init__(make, None)  # type: ignore[arg-type]
    new = make.make.event(make.sub)
    attempt = replace(make.make.attempt(new.deliveries[0]), outcome=Outcome.SENDER_ERROR)
    counts = gather(SettleBatch(number=1, waiting=new.deliveries, attempts=(attempt,)), frozenset())
    minute = attempt.finished_at - attempt.finished_at % MINUTE_MS
    assert counts[minute, 0, make.endpoint.tenant][2] == 1
    assert counts[minute, 0, ""][2] == 1


async def test_endpoints_are_found_counted_and_sorted(db: Db) -> None:
    scene = await Scene(db).begin()
    good = scene.endpoint
    bad = scene.make.endpoint("https://bad.example/Hook")
    health = replace(
        bad.health, state=State.DISABLED, consecutive_failures=9, failures=9, attempts=10
    )
    bad = replace(bad, health=health)
    await put(db, endpoints=[bad])
    await scene.deliver(2)
    views = Views(db)

    async def found(**more: object) -> list[int]:
        asked = {"tenant": None, "state": None, "text": "", "sort": EndpointSort.NEWEST}
        page, _ = await views.find_endpoints(**{**asked, **more}, offset=0, limit=10)  # type: ignore[arg-type]
        return [it.id for it in page]

    assert await found() == [bad.id, good.id]
    assert await found(text="BAD.example/hook") == [bad.id]
    assert await found(state=State.DISABLED) == [bad.id]
    assert await found(tenant="nobody") == []
    for sort in EndpointSort:
        assert len(await found(sort=sort)) == 2
    assert (await found(sort=EndpointSort.ATTENTION))[0] == bad.id
    assert (await found(sort=EndpointSort.FAILING))[0] == bad.id
    assert (await found(sort=EndpointSort.RATE))[0] == bad.id
    counts = await views.counts(tenant=None, limit=100)
    assert (counts.enabled, counts.disabled, counts.frozen) == (1, 1, 0)
    assert (counts.waiting, counts.failing) == (2, 0)
    assert await views.counts(tenant=good.tenant, limit=100) == counts
    figures = await views.figures(limit=100)
    assert (figures.pending, figures.disabled, figures.frozen) == (2, 1, 0)
    assert (await views.figures(limit=0)).disabled == 0
    assert await views.waiting_of([good.id, bad.id], limit=100) == {good.id: 2, bad.id: 0}
    assert await views.waiting_of([good.id], limit=1) == {good.id: 1}
    expiring = await views.expiring(tenant=None, before=1 << 62, limit=10)
    assert [(it.endpoint_id, it.count) for it in expiring] == [(good.id, 2)]
    assert await views.expiring(tenant="nobody", before=1 << 62, limit=10) == []
    assert await views.store_bytes() > 0


def test_an_empty_rollup_counts_nothing() -> None:
    assert sum(Rollup(0).took) == 0
