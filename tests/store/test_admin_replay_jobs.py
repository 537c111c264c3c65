"""Replay jobs read history once, in bounded steps, and no step counts twice."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from homing.model import Delivery, Reason, Status, Subscription
from homing.policy.bulk import Counted
from homing.ports import DeliveryFilter, NewEvent, ReplayFilter, ReplayJob
from homing.store.admin import Admin
from homing.store.tx import Db
from homing.store.views import Views
from store.build import HOUR, NOW, Maker, put

EVENTS = 12
LATER = NOW + 100 * HOUR  # all have finished
KINDS = ("order.paid", "order.paid.late", "order", "orders.x")
ENDS = (
    (Status.DELIVERED, None),
    (Status.DROPPED, Reason.EXHAUSTED),
    (Status.DROPPED, Reason.EXPIRED),
    (Status.CANCELLED, Reason.BY_PERSON),
)


class Scene:
    """Two subscriptions at two endpoints; twelve events, all finished, in many ways."""

    def __init__(self, db: Db) -> None:
        self.db, self.admin, self.views, self.make = db, Admin(db), Views(db), Maker()
        self.one: Subscription
        self.two: Subscription
        self.events: list[NewEvent] = []

    async def build(self) -> Scene:
        self.one = await self._subscribe("https://a.example/in")
        self.two = await self._subscribe("https://b.example/in")
        for n in range(EVENTS):
            self.make.now = NOW + n * HOUR
            self.events.append(self.make.event(self.one, self.two, kind=KINDS[n % len(KINDS)]))
        finished = [
            self.make.finished(delivery, *ENDS[n // 3], at=NOW + (50 - n) * HOUR)
            for n, new in enumerate(self.events)
            for delivery in new.deliveries
        ]
        await put(self.db, events=self.events, finished=finished)
        return self

    async def _subscribe(self, url: str) -> Subscription:
        endpoint = self.make.endpoint(url)
        return await self.admin.create_subscription(
            self.make.subscription(endpoint), endpoint=endpoint
        )

    async def start(self, conditions: ReplayFilter | None = None) -> ReplayJob:
        job = self.make.job(conditions)
        await self.admin.save_replay_job(job)
        return job

    def again(self, old: Delivery) -> Delivery:
        return replace(old, id=self.make.id(), attempts=0, due_at=NOW, accepted_at=NOW, replay=True)

    async def step(self, job: ReplayJob, *, limit: int = 5) -> ReplayJob | None:
        """One step as the engine takes it; None when it was refused."""
        found, upto, done = await self.admin.candidates(job, now=LATER, limit=limit)
        new = [self.again(it.delivery) for it in found]
        after = replace(
            job,
            after_id=upto,
            scanned=job.scanned + len(found),
            replayed=job.replayed + len(new),
            state="done" if done else "running",
        )
        if not await self.admin.replay_step(job, after=after, new=new, seen={}):
            return None
        stored = await self.admin.replay_job(job.id)
        assert stored is not None
        return replace(after, made_at=stored.made_at)

    async def run(self, job: ReplayJob, *, limit: int = 5) -> ReplayJob:
        while job.state == "running":
            after = await self.step(job, limit=limit)
            assert after is not None
            job = after
        return job

    async def pending(self) -> list[Delivery]:
        conditions = DeliveryFilter(status=Status.PENDING)
        page, _ = await self.views.deliveries(conditions, before_id=None, limit=100)
        return [row.delivery for row in page]


async def test_a_job_is_kept_with_its_filter_and_found_while_it_runs(db: Db) -> None:
    scene = await Scene(db).build()
    conditions = ReplayFilter(tenant="acme", status=Status.DROPPED, type="a.*", since=5)
    job = await scene.start(conditions)
    assert await scene.admin.replay_job(job.id) == job
    assert await scene.admin.running_replay_jobs() == [job]
    assert await scene.admin.replay_job(1) is None


async def test_a_job_takes_every_matching_delivery_once(db: Db) -> None:
    scene = await Scene(db).build()
    job = await scene.run(await scene.start())
    assert job.replayed == 2 * EVENTS
    assert await scene.admin.replay_job(job.id) == job
    assert await scene.admin.running_replay_jobs() == []
    roots = sorted(it.root_id for it in await scene.pending())
    assert roots == sorted(it.root_id for new in scene.events for it in new.deliveries)
    assert all(it.replay for it in await scene.pending())
    (ledger,) = await scene.views.ledger(tenant="acme")
    assert (ledger.accepted, ledger.pending) == (4 * EVENTS, 2 * EVENTS)
    first = scene.events[0]
    rows = await scene.views.event_deliveries(first.event.id, limit=9)
    assert len(rows) == 4


async def test_what_a_job_made_is_never_taken_by_it_again(db: Db) -> None:
    scene = await Scene(db).build()
    job = await scene.start()
    after = await scene.step(job)
    assert after is not None
    for delivery in await scene.pending():
        await scene.admin.cancel_delivery(delivery.id, now=NOW)
    done = await scene.run(after)
    assert done.replayed == 2 * EVENTS


@pytest.mark.parametrize("limit", [1, 3, 1_000])
async def test_a_walk_ends_whatever_its_steps(db: Db, limit: int) -> None:
    scene = await Scene(db).build()
    job = await scene.run(await scene.start(ReplayFilter(status=Status.DROPPED)), limit=limit)
    assert job.replayed == 12
    assert job.after_id == job.upto_id


async def test_a_step_looks_at_no_more_rows_than_it_may(db: Db) -> None:
    scene = await Scene(db).build()
    job = scene.make.job(ReplayFilter(type="orders.x"))
    found, upto, done = await scene.admin.candidates(job, now=LATER, limit=5)
    assert (found, done) == ([], False)
    assert upto == scene.events[2].deliveries[0].id
    assert await scene.admin.count_replay(job, now=LATER, limit=8) == (2, False)
    assert await scene.admin.count_replay(job, now=LATER, limit=1_000) == (6, True)


@pytest.mark.parametrize(
    ("conditions", "events"),
    [
        (ReplayFilter(tenant="acme"), range(EVENTS)),
        (ReplayFilter(tenant="other"), ()),
        (ReplayFilter(status=Status.DELIVERED), range(3)),
        (ReplayFilter(status=Status.DROPPED), range(3, 9)),
        (ReplayFilter(status=Status.CANCELLED), range(9, 12)),
        (ReplayFilter(reason=Reason.EXPIRED), range(6, 9)),
        (ReplayFilter(status=Status.DROPPED, reason=Reason.EXHAUSTED), range(3, 6)),
        (ReplayFilter(type="order.paid"), (0, 4, 8)),
        (ReplayFilter(type="order.*"), (0, 1, 4, 5, 8, 9)),
        (ReplayFilter(type="*"), range(EVENTS)),
        (ReplayFilter(type="order*"), range(EVENTS)),
        (ReplayFilter(type="orders*"), (3, 7, 11)),
        (ReplayFilter(since=NOW + 10 * HOUR), (10, 11)),
        (ReplayFilter(as_of=NOW + 40 * HOUR), (10, 11)),
        (ReplayFilter(until=NOW + 2 * HOUR), (0, 1)),
        (ReplayFilter(since=NOW + HOUR, until=NOW + 3 * HOUR, type="order"), (2,)),
    ],
)
async def test_a_filter_takes_what_it_says(
    db: Db, conditions: ReplayFilter, events: range | tuple[int, ...]
) -> None:
    scene = await Scene(db).build()
    job = scene.make.job(conditions)
    found, upto, done = await scene.admin.candidates(job, now=LATER, limit=1_000)
    assert (upto, done) == (job.upto_id, True)
    wanted = [it.id for n in events for it in scene.events[n].deliveries]
    assert [it.delivery.id for it in found] == wanted
    assert await scene.admin.count_replay(job, now=LATER, limit=1_000) == (len(wanted), True)
    counted = await scene.admin.replay_groups(job, now=LATER, limit=1_000)
    assert (counted.count, counted.exact) == (len(wanted), True)
    statuses = Counter(it.status for it in found)
    assert dict(counted.by_status) == statuses


async def test_groups_stop_at_the_rows_they_may_look_at(db: Db) -> None:
    scene = await Scene(db).build()
    job = scene.make.job(ReplayFilter(status=Status.DROPPED))
    counted = await scene.admin.replay_groups(job, now=LATER, limit=5)
    assert (counted.count, counted.exact) == (5, False)
    assert counted.by_tenant == (("acme", 5),)
    none = scene.make.job(ReplayFilter(tenant="nobody"))
    assert await scene.admin.replay_groups(none, now=LATER, limit=99) == Counted(0, exact=True)


async def test_pending_deliveries_are_counted_by_tenant(db: Db) -> None:
    scene = await Scene(db).build()
    views = scene.views
    assert (await views.pending_groups(DeliveryFilter(), limit=99)).count == 0
    await scene.run(await scene.start(ReplayFilter(status=Status.DROPPED)))
    waiting = len(await scene.pending())
    counted = await views.pending_groups(DeliveryFilter(), limit=99)
    assert (counted.count, counted.exact, counted.by_tenant) == (
        waiting,
        True,
        (("acme", waiting),),
    )
    assert counted.by_status == ((Status.PENDING, waiting),)
    theirs = DeliveryFilter(endpoint_id=scene.two.endpoint_id)
    assert (await views.pending_groups(theirs, limit=99)).count == waiting // 2
    assert not (await views.pending_groups(DeliveryFilter(), limit=3)).exact
    other = DeliveryFilter(tenant="other")
    assert await views.pending_groups(other, limit=99) == Counted(0, exact=True)


async def test_an_endpoint_or_a_subscription_narrows_a_filter(db: Db) -> None:
    scene = await Scene(db).build()
    theirs = [new.deliveries[1].id for new in scene.events]
    for conditions in (
        ReplayFilter(endpoint_id=scene.two.endpoint_id),
        ReplayFilter(subscription_id=scene.two.id),
        ReplayFilter(endpoint_id=scene.two.endpoint_id, subscription_id=scene.two.id),
    ):
        job = scene.make.job(conditions)
        found, _, _ = await scene.admin.candidates(job, now=LATER, limit=1_000)
        assert [it.delivery.id for it in found] == theirs
    narrow = ReplayFilter(endpoint_id=scene.two.endpoint_id, status=Status.DROPPED)
    job = scene.make.job(narrow)
    assert await scene.admin.count_replay(job, now=LATER, limit=1_000) == (6, True)


async def test_the_same_step_counts_once(db: Db) -> None:
    scene = await Scene(db).build()
    job = await scene.start()
    assert await scene.step(job) is not None
    assert await scene.step(job) is None
    assert len(await scene.pending()) == 5


async def test_a_cancelled_job_takes_no_further_step(db: Db) -> None:
    scene = await Scene(db).build()
    job = await scene.start()
    after = await scene.step(job)
    assert after is not None
    cancelled = await scene.admin.cancel_replay_job(job.id)
    assert cancelled == replace(after, state="cancelled")
    assert await scene.step(after) is None
    assert await scene.admin.replay_job(job.id) == cancelled
    assert len(await scene.pending()) == 5


async def test_a_finished_job_stays_finished_when_it_is_cancelled(db: Db) -> None:
    scene = await Scene(db).build()
    done = await scene.run(await scene.start(), limit=100)
    assert await scene.admin.cancel_replay_job(done.id) == done
    assert await scene.admin.cancel_replay_job(5) is None


async def test_what_lost_its_subscription_meanwhile_is_skipped_and_counted_so(db: Db) -> None:
    scene = await Scene(db).build()
    job = await scene.start()
    await scene.admin.delete_subscription(scene.two.id, now=NOW, cleanup_job_id=scene.make.id())
    done = await scene.run(job)
    stored = await scene.admin.replay_job(job.id)
    assert stored == replace(done, replayed=EVENTS, skipped=EVENTS)
    assert {it.subscription_id for it in await scene.pending()} == {scene.one.id}
    (ledger,) = await scene.views.ledger(tenant="acme")
    assert (ledger.accepted, ledger.pending) == (3 * EVENTS, EVENTS)


async def test_what_lost_its_event_meanwhile_is_skipped(db: Db) -> None:
    scene = await Scene(db).build()
    stray = scene.make.event(scene.one)
    await put(db, finished=[scene.make.finished(stray.deliveries[0])])
    await scene.run(job := await scene.start())
    stored = await scene.admin.replay_job(job.id)
    assert stored is not None
    assert (stored.replayed, stored.skipped) == (2 * EVENTS, 1)


async def test_a_job_writes_to_the_url_of_now(db: Db) -> None:
    scene = await Scene(db).build()
    job = await scene.start(ReplayFilter(subscription_id=scene.one.id))
    moved = scene.make.endpoint("https://c.example/in")
    await scene.admin.change_subscription(scene.one, endpoint=moved, cleanup_job_id=scene.make.id())
    await scene.run(job)
    assert {(it.endpoint_id, it.bucket) for it in await scene.pending()} == {
        (moved.id, moved.bucket)
    }
