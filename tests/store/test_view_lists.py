"""Events, subscriptions, endpoints, transitions, attempts and the ledger, as people see them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from msgspec.structs import replace

from homing.model import Failure, Outcome, State, Status
from homing.ports import DeliveryFilter, EventRow, Ledger, ViewStore
from homing.ports.views import LastFailure
from homing.store import views as views_module
from homing.store.admin import Admin
from homing.store.tx import Db
from homing.store.views import Views
from store.build import HOUR, NOW, Maker, put

T = TypeVar("T")


async def walked(
    page_before: Callable[[int | None], Awaitable[tuple[list[T], int | None]]],
) -> list[T]:
    """All pages, one after the other."""
    found: list[T] = []
    before_id: int | None = None
    while True:
        page, cursor = await page_before(before_id)
        found += page
        if cursor is None:
            return found
        before_id = cursor


# --- events ---------------------------------------------------------------------------------


async def test_events_are_listed_newest_first_with_the_number_of_their_deliveries(db: Db) -> None:
    views, make = Views(db), Maker()
    endpoint = make.endpoint()
    subscription = make.subscription(endpoint)
    events = [make.event(*[subscription] * (n % 3), data=b"%d" % n) for n in range(10)]
    await put(db, endpoints=[endpoint], subscriptions=[subscription], events=events)
    found = await walked(
        lambda before: views.events(tenant=None, event_type=None, before_id=before, limit=4)
    )
    wanted = [EventRow(new.event, len(new.deliveries)) for new in events]
    assert found == wanted[::-1]
    page, cursor = await views.events(tenant=None, event_type=None, before_id=None, limit=4)
    assert (len(page), cursor) == (4, events[6].event.id)


@pytest.mark.parametrize("look", [3, 2_000])
async def test_events_are_found_by_tenant_and_type(
    db: Db, look: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views_module, "SCAN_MAX", look)
    views, make = Views(db), Maker()
    kinds = ("a", "a.b", "a.b.c", "ab")
    events = [
        make.event(tenant=("acme", "other")[n % 5 == 0], kind=kinds[n % 4]) for n in range(30)
    ]
    await put(db, events=events)
    for tenant in (None, "acme", "other"):
        for kind, fitting in (("a", {"a"}), ("a.*", {"a.b", "a.b.c"}), (None, set(kinds))):
            found = await walked(
                lambda before, tenant=tenant, kind=kind: views.events(  # type: ignore[misc]
                    tenant=tenant, event_type=kind, before_id=before, limit=2
                )
            )
            assert [row.event for row in found] == [
                new.event
                for new in reversed(events)
                if tenant in {None, new.event.tenant} and new.event.type in fitting
            ]


async def test_a_page_of_large_events_is_cut_short_and_goes_on(
    db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views_module, "PAGE_BYTES_MAX", 250)
    views, make = Views(db), Maker()
    events = [make.event(data=b"x" * size) for size in (100, 100, 300, 100, 100, 10)]
    await put(db, events=events)
    sizes = []
    before_id: int | None = None
    while True:
        page, before_id = await views.events(
            tenant=None, event_type=None, before_id=before_id, limit=50
        )
        sizes.append([len(row.event.data) for row in page])
        if before_id is None:
            break
    assert sizes == [[10, 100, 100], [300], [100, 100]]


async def test_an_event_is_found_by_its_id_within_its_tenant(db: Db) -> None:
    views, make = Views(db), Maker()
    ours, theirs = make.event(key="k"), make.event(key="k", tenant="other")
    await put(db, events=[ours, theirs])
    assert await views.event("k", tenant="acme") == EventRow(ours.event, 0)
    assert await views.event("k", tenant="other") == EventRow(theirs.event, 0)
    assert await views.event("k", tenant="nobody") is None
    assert await views.event("x", tenant="acme") is None


# --- subscriptions and endpoints ------------------------------------------------------------


async def test_subscriptions_are_listed_without_the_deleted_ones(db: Db) -> None:
    admin, views, make = Admin(db), Views(db), Maker()
    made = []
    for number in range(12):
        endpoint = make.endpoint(tenant=("acme", "other")[number % 2])
        made.append(await admin.create_subscription(make.subscription(endpoint), endpoint=endpoint))
    for gone in made[3:9]:
        await admin.delete_subscription(gone.id, now=NOW, cleanup_job_id=make.id())
    living = [*made[:3], *made[9:]][::-1]
    for tenant in (None, "acme", "other", "nobody"):
        found = await walked(
            lambda before, tenant=tenant: views.subscriptions(  # type: ignore[misc]
                tenant=tenant, before_id=before, limit=2
            )
        )
        assert found == [it for it in living if tenant in {None, it.tenant}]
    deleted = await views.subscription(made[4].id)
    assert deleted is not None
    assert deleted.deleted_at == NOW
    assert await views.subscription(5) is None


async def test_a_page_of_subscriptions_goes_on_past_any_number_of_deleted_ones(
    db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views_module, "SCAN_MAX", 5)
    views, make = Views(db), Maker()
    endpoint = make.endpoint()
    made = [make.subscription(endpoint) for _ in range(20)]
    gone = [replace(it, deleted_at=NOW) for it in made[2:]]
    await put(db, endpoints=[endpoint], subscriptions=[*made[:2], *gone])
    page, cursor = await views.subscriptions(tenant=None, before_id=None, limit=2)
    assert page == []
    assert cursor is not None
    found = await walked(lambda before: views.subscriptions(tenant=None, before_id=before, limit=2))
    assert found == made[1::-1]


@pytest.mark.parametrize("look", [4, 2_000])
async def test_endpoints_are_found_by_tenant_and_state(
    db: Db, look: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views_module, "SCAN_MAX", look)
    views, make = Views(db), Maker()
    states = (State.ENABLED, State.DISABLED, State.ENABLED, State.FROZEN, State.ENABLED)
    endpoints = [
        make.endpoint(
            f"https://e{n % 7}.example/{n}",
            tenant=("acme", "other")[n % 3 == 0],
            state=states[n % len(states)],
        )
        for n in range(24)
    ]
    await put(db, endpoints=endpoints)
    for tenant in (None, "acme", "other"):
        for state in (None, *State):
            found = await walked(
                lambda before, tenant=tenant, state=state: views.endpoints(  # type: ignore[misc]
                    tenant=tenant, state=state, before_id=before, limit=3
                )
            )
            assert found == [
                it
                for it in reversed(endpoints)
                if tenant in {None, it.tenant} and state in {None, it.health.state}
            ]
    assert await views.endpoint(endpoints[3].id) == endpoints[3]
    assert await views.endpoint(5) is None


async def test_what_waits_at_an_endpoint_is_counted_up_to_a_limit(db: Db) -> None:
    views, make = Views(db), Maker()
    endpoint = make.endpoint()
    subscription = make.subscription(endpoint)
    event = make.event(*[subscription] * 7)
    await put(db, endpoints=[endpoint], events=[event])
    assert await views.waiting(endpoint.id, limit=100) == 7
    assert await views.waiting(endpoint.id, limit=5) == 5
    assert await views.waiting(17, limit=5) == 0


async def test_transitions_are_listed_newest_first(db: Db) -> None:
    admin, views, make = Admin(db), Views(db), Maker()
    endpoint, other = make.endpoint(), make.endpoint("https://b.example/")
    await put(db, endpoints=[endpoint, other])
    made = []
    for number in range(7):
        at = endpoint if number % 2 else other
        transition = make.transition(at)
        if number % 2:
            made.append(transition)
        written = await admin.set_endpoint(at, seen=at, transition=transition, notices=[])
        endpoint, other = (written, other) if number % 2 else (endpoint, written)
    found = await walked(lambda before: views.transitions(endpoint.id, before_id=before, limit=2))
    assert found == made[::-1]


async def test_a_list_shows_why_the_last_attempt_of_each_delivery_failed(db: Db) -> None:
    views, make = Views(db), Maker()
    endpoint = make.endpoint()
    subscription = make.subscription(endpoint)
    events = [make.event(subscription) for _ in range(5)]
    fresh, waiting, dropped, delivered, cancelled = (
        replace(new.deliveries[0], attempts=tries)
        for new, tries in zip(events, (0, 2, 1, 2, 1), strict=True)
    )
    made = [make.attempt(waiting, number=number) for number in (1, 2)]
    made[1] = replace(made[1], code=503, failure=None, detail="")
    made += [make.attempt(it) for it in (dropped, delivered, cancelled)]
    made += [replace(made[0], delivery_id=delivered.id, number=2, outcome=Outcome.DELIVERED)]
    made[4] = replace(made[4], outcome=Outcome.DELIVERED, failure=None, code=204)
    await put(
        db,
        endpoints=[endpoint],
        subscriptions=[subscription],
        events=[
            replace(new, deliveries=(it,))
            for new, it in zip(events, (fresh, waiting, dropped, delivered, cancelled), strict=True)
        ],
        finished=[
            make.finished(dropped, Status.DROPPED),
            make.finished(delivered),
            make.finished(cancelled, Status.CANCELLED),
        ],
    )
    for attempt in made:
        await Admin(db).log_test(attempt)
    reset = LastFailure(None, Failure.RESET, "the connection was reset")
    wanted = {waiting.id: LastFailure(503, None, ""), dropped.id: reset}
    for conditions in (DeliveryFilter(), DeliveryFilter(endpoint_id=endpoint.id)):
        page, _ = await views.deliveries(conditions, before_id=None, limit=10)
        assert len(page) == 5
        assert {it.delivery.id: it.last_failure for it in page if it.last_failure} == wanted
    (row,) = await views.event_deliveries(events[1].event.id, limit=10)
    assert row.last_failure == LastFailure(503, None, "")


async def test_attempts_are_listed_in_order(db: Db) -> None:
    admin, views, make = Admin(db), Views(db), Maker()
    subscription = make.subscription(make.endpoint())
    delivery, other = make.event(subscription, subscription).deliveries
    made = [make.attempt(delivery, number=number) for number in (2, 1, 3)]
    for attempt in (*made, make.attempt(other)):
        await admin.log_test(attempt)
    assert await views.attempts(delivery.id) == sorted(made, key=lambda it: it.number)
    assert await views.attempts(5) == []


# --- the ledger -----------------------------------------------------------------------------


async def books(db: Db) -> None:
    """Two tenants, written by two processes."""
    make = Maker()
    for _ in range(2):
        for tenant, ends in (
            ("acme", (None, None, None, Status.DELIVERED, Status.DROPPED, Status.CANCELLED)),
            ("other", (None, Status.DELIVERED)),
        ):
            endpoint = make.endpoint(f"https://{make.id()}.example/", tenant=tenant)
            event = make.event(*[make.subscription(endpoint)] * len(ends), tenant=tenant)
            finished = [
                make.finished(delivery, end, at=NOW + HOUR)
                for delivery, end in zip(event.deliveries, ends, strict=True)
                if end is not None
            ]
            await put(db, endpoints=[endpoint], events=[event], finished=finished)


async def test_the_ledger_adds_up_for_every_tenant(db: Db) -> None:
    await books(db)
    acme = Ledger("acme", 12, 2, pending=6, dropped=2, cancelled=2, superseded=0, counted=True)
    other = Ledger("other", 4, 2, pending=2, dropped=0, cancelled=0, superseded=0, counted=True)
    views = Views(db)
    assert await views.ledger(tenant=None) == [acme, other]
    assert await views.ledger(tenant="acme") == [acme]
    assert await views.ledger(tenant="other") == [other]
    assert await views.ledger(tenant="nobody") == []


async def test_beyond_its_bound_the_ledger_says_that_it_did_not_count(
    db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    await books(db)
    monkeypatch.setattr(views_module, "LEDGER_ROWS_MAX", 5)
    views = Views(db)
    acme = Ledger("acme", 12, 2, pending=6, dropped=2, cancelled=2, superseded=0, counted=False)
    assert await views.ledger(tenant="acme") == [acme]
    assert [it.counted for it in await views.ledger(tenant="other")] == [True]
    assert [it.counted for it in await views.ledger(tenant=None)] == [False, False]
    assert [it.pending for it in await views.ledger(tenant=None)] == [6, 2]


async def test_a_ping_is_answered(db: Db) -> None:
    views: ViewStore = Views(db)
    await views.ping()
