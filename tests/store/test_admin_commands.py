"""Commands on one endpoint or one delivery: set, cancel, replay, and the log of a test send."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from homing.errors import (
    AlreadyFinished,
    Gone,
    NotFound,
    StaleEndpoints,
    StillPending,
    SubscriptionGone,
)
from homing.model import Delivery, Endpoint, Health, Reason, State, Status, Subscription
from homing.ports import NewEvent, SettleBatch
from homing.store.admin import Admin
from homing.store.flow import Flow
from homing.store.tx import Db
from homing.store.views import Views
from store.build import HOUR, NOW, Maker, put

NODE = 3


async def subscribed(
    db: Db, make: Maker, url: str = "https://a.example/in"
) -> tuple[Endpoint, Subscription]:
    endpoint = make.endpoint(url)
    subscription = make.subscription(endpoint)
    return endpoint, await Admin(db).create_subscription(subscription, endpoint=endpoint)


async def with_history(db: Db, make: Maker) -> tuple[Subscription, NewEvent]:
    """A subscription to which one event was delivered."""
    _, subscription = await subscribed(db, make)
    event = make.event(subscription)
    await put(db, events=[event], finished=[make.finished(event.deliveries[0])])
    return subscription, event


def again(make: Maker) -> Delivery:
    """A new delivery as the engine makes it; the store fills in its endpoint and bucket."""
    number = make.id()
    return Delivery(
        id=number,
        bucket=0,
        tenant="?",
        endpoint_id=0,
        subscription_id=0,
        event_id=0,
        root_id=0,
        accepted_at=NOW + HOUR,
        due_at=NOW + HOUR,
        expires_at=NOW + 49 * HOUR,
    )


# --- set_endpoint ---------------------------------------------------------------------------


async def test_a_set_endpoint_is_replaced_whole_and_its_generation_raised(db: Db) -> None:
    admin, views, make = Admin(db), Views(db), Maker()
    endpoint, _ = await subscribed(db, make)
    wanted = replace(
        endpoint,
        health=Health(State.FROZEN, NOW + 1, NOW, 9, 8, 7, NOW + 2, NOW + 3, NOW + 4, 5),
        next_probe_at=NOW + 6,
        probe_after_id=11,
        hold_until=NOW + 7,
        dropped_unreported=12,
        dropped_reported_at=NOW + 8,
        rule="person",
    )
    transition = make.transition(endpoint)
    written = await admin.set_endpoint(wanted, seen=endpoint, transition=transition, notices=[])
    assert written == replace(wanted, generation=1)
    assert await views.endpoint(endpoint.id) == written
    assert await views.transitions(endpoint.id, before_id=None, limit=9) == ([transition], None)


async def test_an_endpoint_that_changed_meanwhile_is_stale_and_nothing_is_written(db: Db) -> None:
    admin, views, make = Admin(db), Views(db), Maker()
    endpoint, subscription = await subscribed(db, make)
    newer = await admin.set_endpoint(endpoint, seen=endpoint, transition=None, notices=[])
    with pytest.raises(StaleEndpoints) as stale:
        await admin.set_endpoint(
            endpoint,
            seen=endpoint,
            transition=make.transition(endpoint),
            notices=[make.event(subscription)],
        )
    assert stale.value.endpoint_ids == {endpoint.id}
    assert await views.endpoint(endpoint.id) == newer
    assert await views.transitions(endpoint.id, before_id=None, limit=9) == ([], None)
    page, _ = await views.events(tenant=None, event_type=None, before_id=None, limit=9)
    assert page == []


async def test_a_command_makes_what_a_settle_knew_stale(db: Db) -> None:
    make = Maker()
    endpoint, _ = await subscribed(db, make)
    await Admin(db).set_endpoint(endpoint, seen=endpoint, transition=None, notices=[])
    with pytest.raises(StaleEndpoints):
        await Flow(db).settle(SettleBatch(number=1, endpoints=(endpoint,)))


async def test_notices_are_written_with_their_deliveries_in_the_same_commit(db: Db) -> None:
    admin, views, make = Admin(db, NODE), Views(db), Maker()
    endpoint, _ = await subscribed(db, make)
    _, listener = await subscribed(db, make, "https://ops.example/")
    notice = make.event(listener, kind="homing.endpoint.frozen")
    await admin.set_endpoint(endpoint, seen=endpoint, transition=None, notices=[notice])
    row = await views.event(notice.event.key, tenant="acme")
    assert row is not None
    assert (row.event, row.deliveries) == (notice.event, 1)
    delivery = await views.delivery(notice.deliveries[0].id)
    assert delivery is not None
    assert (delivery.delivery, delivery.status) == (notice.deliveries[0], Status.PENDING)
    (ledger,) = await views.ledger(tenant="acme")
    assert (ledger.accepted, ledger.pending) == (1, 1)


# --- cancel ---------------------------------------------------------------------------------


async def test_a_cancelled_delivery_leaves_pending_for_history(db: Db) -> None:
    admin, views, make = Admin(db), Views(db), Maker()
    _, subscription = await subscribed(db, make)
    event = make.event(subscription, subscription)
    await put(db, events=[event])
    delivery = event.deliveries[0]
    cancelled = await admin.cancel_delivery(delivery.id, now=NOW + 5)
    assert replace(cancelled, position=0) == delivery
    row = await views.delivery(delivery.id)
    assert row is not None
    assert (row.delivery, row.status, row.reason) == (delivery, Status.CANCELLED, Reason.BY_PERSON)
    assert (row.finished_at, row.arrived) == (NOW + 5, False)
    (ledger,) = await views.ledger(tenant="acme")
    assert (ledger.accepted, ledger.pending, ledger.cancelled) == (2, 1, 1)
    with pytest.raises(AlreadyFinished):
        await admin.cancel_delivery(delivery.id, now=NOW + 6)


async def test_an_unknown_delivery_cannot_be_cancelled(db: Db) -> None:
    with pytest.raises(NotFound):
        await Admin(db).cancel_delivery(5, now=NOW)


# --- replay ---------------------------------------------------------------------------------


async def test_a_replay_is_a_new_delivery_of_the_same_event_and_root(db: Db) -> None:
    admin, views, make = Admin(db, NODE), Views(db), Maker()
    subscription, event = await with_history(db, make)
    old = event.deliveries[0]
    new = again(make)
    written = await admin.replay(old.id, new=new)
    assert written == replace(
        new,
        tenant="acme",
        bucket=old.bucket,
        endpoint_id=old.endpoint_id,
        subscription_id=subscription.id,
        event_id=event.event.id,
        root_id=old.root_id,
        replay=True,
    )
    rows = await views.event_deliveries(event.event.id, limit=9)
    assert [(row.delivery, row.status) for row in rows] == [
        (old, Status.DELIVERED),
        (written, Status.PENDING),
    ]
    (ledger,) = await views.ledger(tenant="acme")
    assert (ledger.accepted, ledger.delivered, ledger.pending) == (2, 1, 1)


async def test_a_replay_goes_to_the_url_of_now(db: Db) -> None:
    admin, make = Admin(db), Maker()
    subscription, event = await with_history(db, make)
    moved = make.endpoint("https://b.example/in")
    await admin.change_subscription(
        replace(subscription, url=moved.url), endpoint=moved, cleanup_job_id=make.id()
    )
    written = await admin.replay(event.deliveries[0].id, new=again(make))
    assert (written.endpoint_id, written.bucket) == (moved.id, moved.bucket)


async def test_a_replay_of_a_replay_keeps_the_first_root(db: Db) -> None:
    admin, views, make = Admin(db), Views(db), Maker()
    _, event = await with_history(db, make)
    first = await admin.replay(event.deliveries[0].id, new=again(make))
    await admin.cancel_delivery(first.id, now=NOW)
    second = await admin.replay(first.id, new=again(make))
    assert second.root_id == event.deliveries[0].id
    rows = await views.event_deliveries(event.event.id, limit=9)
    assert [row.delivery.id for row in rows] == [event.deliveries[0].id, first.id, second.id]


async def test_a_pending_delivery_cannot_be_replayed(db: Db) -> None:
    make = Maker()
    _, subscription = await subscribed(db, make)
    event = make.event(subscription)
    await put(db, events=[event])
    with pytest.raises(StillPending):
        await Admin(db).replay(event.deliveries[0].id, new=again(make))


async def test_an_unknown_delivery_cannot_be_replayed(db: Db) -> None:
    with pytest.raises(NotFound):
        await Admin(db).replay(5, new=again(Maker()))


async def test_a_delivery_of_a_deleted_subscription_cannot_be_replayed(db: Db) -> None:
    admin, make = Admin(db), Maker()
    subscription, event = await with_history(db, make)
    await admin.delete_subscription(subscription.id, now=NOW, cleanup_job_id=make.id())
    with pytest.raises(SubscriptionGone):
        await admin.replay(event.deliveries[0].id, new=again(make))


async def test_a_delivery_whose_event_is_past_retention_cannot_be_replayed(db: Db) -> None:
    admin, views, make = Admin(db), Views(db), Maker()
    _, subscription = await subscribed(db, make)
    event = make.event(subscription)
    await put(db, finished=[make.finished(event.deliveries[0])])
    with pytest.raises(Gone):
        await admin.replay(event.deliveries[0].id, new=again(make))
    row = await views.delivery(event.deliveries[0].id)
    assert row is not None
    assert (row.event_key, row.event_type) == ("", "")


# --- test sends -----------------------------------------------------------------------------


async def test_a_test_send_is_logged_and_counts_for_nothing(db: Db) -> None:
    admin, views, make = Admin(db), Views(db), Maker()
    endpoint, subscription = await subscribed(db, make)
    attempt = make.attempt(make.delivery(make.event().event, subscription))
    await admin.log_test(attempt)
    assert await views.attempts(attempt.delivery_id) == [attempt]
    assert await views.endpoint(endpoint.id) == endpoint
    assert await views.ledger(tenant=None) == []


# --- try now --------------------------------------------------------------------------------


async def test_a_delivery_that_is_tried_now_is_due_now_and_nothing_else_of_it_changes(
    db: Db,
) -> None:
    admin, views, make = Admin(db), Views(db), Maker()
    _, subscription = await subscribed(db, make)
    event = make.event(subscription)
    delivery = replace(event.deliveries[0], attempts=1, t0=NOW, retry=1, due_at=NOW + 84_800)
    await put(db, events=[replace(event, deliveries=(delivery,))])
    tried = await admin.try_delivery_now(delivery.id, due_at=NOW + 5)
    assert tried == replace(delivery, due_at=NOW + 5, position=tried.position)
    row = await views.delivery(delivery.id)
    assert row is not None
    assert (row.delivery, row.status) == (replace(tried, position=0), Status.PENDING)
    # One that is due stays where it is in the queue.
    assert await admin.try_delivery_now(delivery.id, due_at=NOW + 9) == tried


async def test_only_a_pending_delivery_can_be_tried_now(db: Db) -> None:
    admin, make = Admin(db), Maker()
    _, event = await with_history(db, make)
    with pytest.raises(AlreadyFinished):
        await admin.try_delivery_now(event.deliveries[0].id, due_at=NOW)
    with pytest.raises(NotFound):
        await admin.try_delivery_now(5, due_at=NOW)
