"""Commands that arrive at the same time are done one after the other, each as a whole.

Promised: what-homing-promises.md#stale-requests.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from homing.errors import AlreadyFinished, StaleEndpoints
from homing.model import Delivery, Endpoint, State, Status, Subscription
from homing.ports import CleanupStep, DeliveryFilter, SettleBatch
from homing.store.admin import Admin
from homing.store.flow import Flow
from homing.store.tx import Db
from homing.store.views import Views
from store.build import NOW, Maker, put

CROWD = 12


async def subscribed(db: Db, make: Maker) -> tuple[Endpoint, Subscription]:
    endpoint = make.endpoint()
    subscription = make.subscription(endpoint)
    return endpoint, await Admin(db).create_subscription(subscription, endpoint=endpoint)


async def test_all_who_subscribe_to_a_url_at_once_share_one_endpoint(db: Db) -> None:
    admin, make = Admin(db), Maker()
    endpoints = [make.endpoint() for _ in range(CROWD)]
    made = await asyncio.gather(
        *(admin.create_subscription(make.subscription(it), endpoint=it) for it in endpoints)
    )
    assert len({it.endpoint_id for it in made}) == 1
    assert sorted(it.version for it in made) == list(range(1, CROWD + 1))
    page, _ = await Views(db).endpoints(tenant=None, state=None, before_id=None, limit=9)
    assert [it.id for it in page] == [made[0].endpoint_id]


async def test_of_those_who_cancel_a_delivery_at_once_one_does(db: Db) -> None:
    admin, make = Admin(db), Maker()
    _, subscription = await subscribed(db, make)
    event = make.event(subscription)
    await put(db, events=[event])
    replies = await asyncio.gather(
        *(admin.cancel_delivery(event.deliveries[0].id, now=NOW) for _ in range(CROWD)),
        return_exceptions=True,
    )
    done = [it for it in replies if isinstance(it, Delivery)]
    assert [replace(it, position=0) for it in done] == [event.deliveries[0]]
    assert sum(isinstance(it, AlreadyFinished) for it in replies) == CROWD - 1
    (ledger,) = await Views(db).ledger(tenant=None)
    assert (ledger.accepted, ledger.cancelled, ledger.pending) == (1, 1, 0)


async def test_a_delivery_settled_and_cancelled_at_once_ends_once(db: Db) -> None:
    admin, flow, views, make = Admin(db), Flow(db), Views(db), Maker()
    _, subscription = await subscribed(db, make)
    event = make.event(*[subscription] * CROWD)
    await put(db, events=[event])
    settles = [
        flow.settle(SettleBatch(number=number, finished=(make.finished(it),)))
        for number, it in enumerate(event.deliveries, 1)
    ]
    cancels = [admin.cancel_delivery(it.id, now=NOW) for it in event.deliveries]
    replies = await asyncio.gather(*settles, *cancels, return_exceptions=True)
    late = [it for it in replies[CROWD:] if isinstance(it, AlreadyFinished)]
    (ledger,) = await views.ledger(tenant=None)
    assert (ledger.delivered, ledger.cancelled) == (len(late), CROWD - len(late))
    assert (ledger.pending, ledger.counted) == (0, True)
    rows = await views.event_deliveries(event.event.id, limit=99)
    assert len(rows) == CROWD
    assert all(row.arrived for row in rows if row.status is Status.CANCELLED)


async def test_of_those_who_set_an_endpoint_at_once_one_does(db: Db) -> None:
    admin, make = Admin(db), Maker()
    endpoint, _ = await subscribed(db, make)
    frozen = replace(endpoint, health=replace(endpoint.health, state=State.FROZEN))
    replies = await asyncio.gather(
        *(
            admin.set_endpoint(
                frozen, seen=endpoint, transition=make.transition(endpoint), notices=[]
            )
            for _ in range(CROWD)
        ),
        return_exceptions=True,
    )
    written = [it for it in replies if not isinstance(it, StaleEndpoints)]
    assert written == [replace(frozen, generation=1)]
    page, _ = await Views(db).transitions(endpoint.id, before_id=None, limit=99)
    assert len(page) == 1


async def test_of_those_who_take_the_same_step_of_a_replay_one_does(db: Db) -> None:
    admin, make = Admin(db), Maker()
    _, subscription = await subscribed(db, make)
    event = make.event(subscription)
    old = event.deliveries[0]
    await put(db, events=[event], finished=[make.finished(old)])
    job = make.job()
    await admin.save_replay_job(job)
    after = replace(job, after_id=job.upto_id, replayed=1, state="done")
    replies = await asyncio.gather(
        *(
            admin.replay_step(job, after=after, new=[replace(old, id=make.id())], seen={})
            for _ in range(CROWD)
        )
    )
    assert sorted(replies) == [False] * (CROWD - 1) + [True]
    (ledger,) = await Views(db).ledger(tenant=None)
    assert (ledger.accepted, ledger.pending) == (2, 1)


async def test_what_is_replayed_while_a_url_changes_comes_to_the_new_one(db: Db) -> None:
    admin, views, make = Admin(db), Views(db), Maker()
    _, subscription = await subscribed(db, make)
    events = [make.event(subscription) for _ in range(CROWD)]
    olds = [new.deliveries[0] for new in events]
    await put(db, events=events, finished=[make.finished(it) for it in olds])
    moved = make.endpoint("https://b.example/in")
    change = admin.change_subscription(
        replace(subscription, url=moved.url), endpoint=moved, cleanup_job_id=make.id()
    )
    replays = [admin.replay(it.id, new=replace(it, id=make.id())) for it in olds]
    await asyncio.gather(*replays[: CROWD // 2], change, *replays[CROWD // 2 :])
    for cleanup_job in await admin.cleanup_jobs():
        await admin.run_cleanup_job(
            cleanup_job, target=moved, except_ids=frozenset(), now=NOW, limit=99
        )
    conditions = DeliveryFilter(status=Status.PENDING)
    page, _ = await views.deliveries(conditions, before_id=None, limit=99)
    assert [row.url for row in page] == [moved.url] * CROWD


async def test_a_cleanup_job_done_by_many_at_once_is_done_once(db: Db) -> None:
    admin, views, make = Admin(db), Views(db), Maker()
    _, subscription = await subscribed(db, make)
    event = make.event(*[subscription] * 40)
    await put(db, events=[event])
    await admin.delete_subscription(subscription.id, now=NOW, cleanup_job_id=make.id())
    (cleanup_job,) = await admin.cleanup_jobs()
    steps = await asyncio.gather(
        *(
            admin.run_cleanup_job(
                cleanup_job, target=None, except_ids=frozenset(), now=NOW, limit=10
            )
            for _ in range(CROWD)
        )
    )
    assert sum(step.touched for step in steps) == 40
    assert CleanupStep(touched=0, done=True) in steps
    (ledger,) = await views.ledger(tenant=None)
    assert (ledger.cancelled, ledger.pending) == (40, 0)


async def test_a_publish_at_the_moment_of_a_deletion_is_cancelled(db: Db) -> None:
    admin, flow, views, make = Admin(db), Flow(db), Views(db), Maker()
    _, subscription = await subscribed(db, make)
    events = [make.event(subscription) for _ in range(CROWD)]
    publishes = [flow.publish([[new]], number=number) for number, new in enumerate(events, 1)]
    delete = admin.delete_subscription(subscription.id, now=NOW, cleanup_job_id=make.id())
    replies = await asyncio.gather(
        *publishes[: CROWD // 2], delete, *publishes[CROWD // 2 :], return_exceptions=True
    )
    assert not any(isinstance(it, BaseException) for it in replies)
    for cleanup_job in await admin.cleanup_jobs():
        await admin.run_cleanup_job(
            cleanup_job, target=None, except_ids=frozenset(), now=NOW, limit=99
        )
    page, _ = await views.deliveries(DeliveryFilter(), before_id=None, limit=99)
    assert [row.status for row in page] == [Status.CANCELLED] * CROWD
