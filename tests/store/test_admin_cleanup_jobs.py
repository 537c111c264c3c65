"""Cleanup jobs: pending deliveries follow their subscription, or end with it, in bounded steps."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from homing.errors import NotFound, StaleCatalog
from homing.model import Endpoint, Reason, ReceiverState, Status, Subscription
from homing.policy.receiver import after_change, set_gone
from homing.ports import CleanupJob, CleanupStep, DeliveryFilter, DeliveryRow, NewEvent
from homing.store.admin import Admin
from homing.store.tx import Db
from homing.store.views import Views
from store.build import NOW, Maker, put

LIMIT = 100


class Scene:
    """A subscription at A with ten pending deliveries, next to another with as many."""

    def __init__(self, db: Db) -> None:
        self.db, self.admin, self.views, self.make = db, Admin(db), Views(db), Maker()
        self.a = self.make.endpoint("https://a.example/in")
        self.b = self.make.endpoint("https://b.example/in")
        self.c = self.make.endpoint("https://c.example/in")
        self.mine: Subscription
        self.other: Subscription
        self.events: list[NewEvent] = []

    async def build(self, events: int = 10) -> Scene:
        for at in (self.a, self.b, self.c):
            keeper = self.make.subscription(at)
            await self.admin.create_subscription(keeper, endpoint=at)
        self.mine = await self._subscribe(self.a)
        self.other = await self._subscribe(self.a)
        self.events = [self.make.event(self.mine, self.other) for _ in range(events)]
        await put(self.db, events=self.events)
        return self

    async def _subscribe(self, at: Endpoint) -> Subscription:
        return await self.admin.create_subscription(self.make.subscription(at), endpoint=at)

    async def move(self, to: Endpoint) -> None:
        self.mine = await self.admin.change_subscription(
            replace(self.mine, url=to.url), endpoint=to, cleanup_job_id=self.make.id()
        )

    async def delete(self) -> None:
        await self.admin.delete_subscription(
            self.mine.id, now=NOW + 9, cleanup_job_id=self.make.id()
        )

    async def gone(self, *, at: int = NOW + 9) -> None:
        new = set_gone(self.mine, now=at)
        self.mine = await self.admin.subscription_gone(
            new,
            cleanup_job_id=self.make.id(),
            notices=(),
            for_people=(),
            bucket=self.a.bucket,
        )
        await self.admin.bound_gone(self.mine.id)
        bound = await self.views.subscription(self.mine.id)
        assert bound is not None
        self.mine = bound

    async def activate(self, at: Endpoint) -> None:
        new = after_change(self.mine, replace(self.mine, active=True, url=at.url))
        self.mine = await self.admin.change_subscription(
            new, endpoint=at, cleanup_job_id=self.make.id()
        )

    async def step(
        self,
        cleanup_job: CleanupJob,
        *,
        target: Endpoint | None = None,
        except_ids: frozenset[int] = frozenset(),
        limit: int = LIMIT,
    ) -> CleanupStep:
        return await self.admin.run_cleanup_job(
            cleanup_job, target=target, except_ids=except_ids, now=NOW + 10, limit=limit
        )

    async def do_all(self, target: Endpoint | None) -> None:
        while cleanup_jobs := await self.admin.cleanup_jobs():
            for cleanup_job in cleanup_jobs:
                await self.step(cleanup_job, target=target, limit=3)

    async def rows(self, of: Subscription) -> list[DeliveryRow]:
        conditions = DeliveryFilter(subscription_id=of.id)
        page, cursor = await self.views.deliveries(conditions, before_id=None, limit=LIMIT)
        assert cursor is None
        return page

    async def places(self, of: Subscription) -> list[tuple[Status, str]]:
        return sorted({(row.status, row.url) for row in await self.rows(of)})


async def test_pending_deliveries_follow_their_subscription_to_its_new_url(db: Db) -> None:
    scene = await Scene(db).build()
    await scene.move(scene.b)
    (cleanup_job,) = await scene.admin.cleanup_jobs()
    assert await scene.step(cleanup_job, target=scene.b) == CleanupStep(touched=10, done=True)
    assert await scene.admin.cleanup_jobs() == []
    assert await scene.places(scene.mine) == [(Status.PENDING, scene.b.url)]
    assert await scene.places(scene.other) == [(Status.PENDING, scene.a.url)]
    assert {row.delivery.bucket for row in await scene.rows(scene.mine)} == {scene.b.bucket}


async def test_a_step_looks_at_no_more_rows_than_it_may_and_keeps_its_progress(db: Db) -> None:
    scene = await Scene(db).build()
    await scene.move(scene.b)
    (cleanup_job,) = await scene.admin.cleanup_jobs()
    assert await scene.step(cleanup_job, target=scene.b, limit=8) == CleanupStep(
        touched=4, done=False
    )
    (again,) = await scene.admin.cleanup_jobs()
    assert again == replace(cleanup_job, after_id=scene.events[3].deliveries[1].id)
    assert await scene.step(cleanup_job, target=scene.b, limit=8) == CleanupStep(
        touched=4, done=False
    )
    assert await scene.step(cleanup_job, target=scene.b, limit=8) == CleanupStep(
        touched=2, done=True
    )
    assert await scene.step(cleanup_job, target=scene.b, limit=8) == CleanupStep(
        touched=0, done=True
    )


async def test_what_is_in_flight_is_left_where_it_is(db: Db) -> None:
    scene = await Scene(db).build()
    await scene.move(scene.b)
    (cleanup_job,) = await scene.admin.cleanup_jobs()
    in_flight = frozenset({scene.events[2].deliveries[0].id})
    step = await scene.step(cleanup_job, target=scene.b, except_ids=in_flight)
    assert step == CleanupStep(touched=9, done=True)
    left = [row for row in await scene.rows(scene.mine) if row.url == scene.a.url]
    assert {row.delivery.id for row in left} == in_flight


async def test_two_changes_in_a_row_lead_to_the_last_url(db: Db) -> None:
    scene = await Scene(db).build()
    await scene.move(scene.b)
    (first,) = await scene.admin.cleanup_jobs()
    await scene.step(first, target=scene.b, limit=6)
    await scene.move(scene.c)
    assert len(await scene.admin.cleanup_jobs()) == 2
    await scene.do_all(scene.c)
    assert await scene.places(scene.mine) == [(Status.PENDING, scene.c.url)]


async def test_a_change_there_and_back_brings_all_back(db: Db) -> None:
    scene = await Scene(db).build()
    await scene.move(scene.b)
    (first,) = await scene.admin.cleanup_jobs()
    await scene.step(first, target=scene.b, limit=6)
    await scene.move(scene.a)
    assert await scene.step(first, target=scene.a) == CleanupStep(touched=0, done=True)
    await scene.do_all(scene.a)
    assert await scene.places(scene.mine) == [(Status.PENDING, scene.a.url)]


async def test_a_move_to_where_the_subscription_no_longer_is_is_refused(db: Db) -> None:
    scene = await Scene(db).build()
    await scene.move(scene.b)
    (cleanup_job,) = await scene.admin.cleanup_jobs()
    await scene.move(scene.c)
    with pytest.raises(StaleCatalog):
        await scene.step(cleanup_job, target=scene.b)
    with pytest.raises(StaleCatalog):
        await scene.step(cleanup_job, target=None)
    assert await scene.places(scene.mine) == [(Status.PENDING, scene.a.url)]


async def test_what_is_pending_is_cancelled_with_its_subscription(db: Db) -> None:
    scene = await Scene(db).build()
    await scene.delete()
    (cleanup_job,) = await scene.admin.cleanup_jobs()
    in_flight = frozenset({scene.events[0].deliveries[0].id})
    step = await scene.step(cleanup_job, except_ids=in_flight)
    assert step == CleanupStep(touched=9, done=True)
    cancelled = [row for row in await scene.rows(scene.mine) if row.status is Status.CANCELLED]
    assert len(cancelled) == 9
    assert {row.reason for row in cancelled} == {Reason.SUBSCRIPTION_DELETED}
    assert {row.finished_at for row in cancelled} == {NOW + 10}
    assert await scene.places(scene.other) == [(Status.PENDING, scene.a.url)]
    (ledger,) = await scene.views.ledger(tenant="acme")
    assert (ledger.accepted, ledger.pending, ledger.cancelled) == (20, 11, 9)
    assert ledger.counted


async def test_a_deletion_in_the_middle_of_a_move_cancels_at_every_place(db: Db) -> None:
    scene = await Scene(db).build()
    await scene.move(scene.b)
    (first,) = await scene.admin.cleanup_jobs()
    await scene.step(first, target=scene.b, limit=6)
    await scene.move(scene.c)
    await scene.delete()
    await scene.do_all(None)
    places = await scene.places(scene.mine)
    assert {status for status, _ in places} == {Status.CANCELLED}
    assert {url for _, url in places} == {scene.a.url, scene.b.url}
    (ledger,) = await scene.views.ledger(tenant="acme")
    assert (ledger.accepted, ledger.pending, ledger.cancelled) == (20, 10, 10)


async def test_the_second_of_two_who_do_the_same_step_finds_it_done(db: Db) -> None:
    scene = await Scene(db).build(events=2)
    await scene.delete()
    (cleanup_job,) = await scene.admin.cleanup_jobs()
    assert await scene.step(cleanup_job) == CleanupStep(touched=2, done=True)
    assert await scene.step(cleanup_job) == CleanupStep(touched=0, done=True)
    (ledger,) = await scene.views.ledger(tenant="acme")
    assert ledger.cancelled == 2


async def test_what_is_pending_is_cancelled_when_its_receiver_is_gone(db: Db) -> None:
    scene = await Scene(db).build()
    await scene.gone()
    stored = await scene.views.subscription(scene.mine.id)
    assert stored == scene.mine
    (cleanup_job,) = await scene.admin.cleanup_jobs()
    assert not stored.active
    assert stored.receiver is not None
    upto = stored.receiver.gone_upto
    assert upto > 0
    assert stored.receiver == ReceiverState(gone_at=NOW + 9, gone_upto=upto)
    in_flight = frozenset({scene.events[0].deliveries[0].id})
    (cleanup_job,) = await scene.admin.cleanup_jobs()
    step = await scene.step(cleanup_job, target=scene.a, except_ids=in_flight)
    assert step == CleanupStep(touched=9, done=True)
    cancelled = [row for row in await scene.rows(scene.mine) if row.status is Status.CANCELLED]
    assert {row.reason for row in cancelled} == {Reason.GONE}
    assert await scene.places(scene.other) == [(Status.PENDING, scene.a.url)]
    (ledger,) = await scene.views.ledger(tenant="acme")
    assert (ledger.accepted, ledger.pending, ledger.cancelled) == (20, 11, 9)


async def test_a_delivery_accepted_after_the_410_stays_pending(db: Db) -> None:
    """Whatever the clock says: it was ahead at the time of the 410."""
    scene = await Scene(db).build()
    await scene.gone(at=NOW + 3_600_000)
    later = scene.make.event(scene.mine)
    await put(db, events=[later])
    await scene.do_all(scene.a)
    kept = [row for row in await scene.rows(scene.mine) if row.status is Status.PENDING]
    assert [row.delivery.id for row in kept] == [later.deliveries[0].id]


async def test_a_410_cancels_what_was_accepted_while_the_clock_was_ahead(db: Db) -> None:
    scene = await Scene(db).build()
    await scene.gone(at=NOW - 3_600_000)
    await scene.do_all(scene.a)
    assert {row.status for row in await scene.rows(scene.mine)} == {Status.CANCELLED}


async def test_a_410_about_another_version_of_the_subscription_is_refused(db: Db) -> None:
    scene = await Scene(db).build()
    seen = scene.mine
    await scene.move(scene.b)
    moved, scene.mine = scene.mine, seen
    with pytest.raises(StaleCatalog):
        await scene.gone()
    assert await scene.views.subscription(moved.id) == moved
    scene.mine = moved
    await scene.delete()
    with pytest.raises(NotFound):
        await scene.gone()


async def test_a_410_in_the_middle_of_a_move_cancels_at_every_place(db: Db) -> None:
    scene = await Scene(db).build()
    await scene.move(scene.b)
    (first,) = await scene.admin.cleanup_jobs()
    await scene.step(first, target=scene.b, limit=6)
    await scene.gone()
    await scene.do_all(scene.b)
    assert {it for it, _ in await scene.places(scene.mine)} == {Status.CANCELLED}
    assert {row.reason for row in await scene.rows(scene.mine)} == {Reason.GONE}


async def test_what_is_left_follows_a_subscription_that_is_activated_again(db: Db) -> None:
    scene = await Scene(db).build()
    await scene.gone()
    (cleanup_job,) = await scene.admin.cleanup_jobs()
    assert (await scene.step(cleanup_job, target=scene.a, limit=8)).touched == 4
    await scene.activate(scene.b)
    await scene.do_all(scene.b)
    assert await scene.places(scene.mine) == [
        (Status.CANCELLED, scene.a.url),
        (Status.PENDING, scene.b.url),
    ]
