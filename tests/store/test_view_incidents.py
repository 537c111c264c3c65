"""What the page of incidents reads: failing and ended causes, and what waits for them."""

from __future__ import annotations

import apsw
from msgspec.structs import replace

from homing.model import Cause, CauseKey, Endpoint, State
from homing.store import rows
from homing.store.sqlite import SqliteDb
from homing.store.tx import Db, Tx
from homing.store.views import Views
from store.build import HOUR, NOW, Maker, put

REFUSED = CauseKey("refused")


def a_cause(make: Maker, endpoint: Endpoint, *, closed_at: int | None = None) -> Cause:
    return Cause(
        id=make.id(),
        tenant=endpoint.tenant,
        endpoint_id=endpoint.id,
        key=REFUSED,
        first_seen=NOW - HOUR,
        last_seen=NOW,
        attempts=3,
        deliveries=2,
        example_id=7,
        example_number=1,
        closed_at=closed_at,
    )


async def keep(db: Db, *causes: Cause) -> None:
    async def work(tx: Tx) -> None:
        await tx.insert("cause", [rows.cause_row(it) for it in causes])

    await db.run(work)


async def test_failing_are_the_open_causes_of_enabled_endpoints(db: Db) -> None:
    views, make = Views(db), Maker()
    mine, held, other = (
        make.endpoint(f"https://{n}.example/", tenant=tenant, state=state)
        for n, tenant, state in (
            (1, "acme", State.ENABLED),
            (2, "acme", State.FROZEN),
            (3, "other", State.ENABLED),
        )
    )
    await put(db, endpoints=[mine, held, other])
    open_, closed = a_cause(make, mine), a_cause(make, mine, closed_at=NOW)
    of_held, of_other = a_cause(make, held), a_cause(make, other)
    await keep(db, open_, closed, of_held, of_other)

    found = await views.failing(tenant=None, limit=10)
    assert [it.cause for it in found] == [of_other, open_]
    assert [(it.url, it.state) for it in found] == [
        (other.url, State.ENABLED),
        (mine.url, State.ENABLED),
    ]
    assert [it.cause for it in await views.failing(tenant="acme", limit=10)] == [open_]
    assert [it.cause for it in await views.failing(tenant=None, limit=1)] == [of_other]


async def test_the_causes_that_ended_last_come_first_for_all_and_for_one_tenant(db: Db) -> None:
    views, make = Views(db), Maker()
    mine, other = make.endpoint(), make.endpoint("https://b.example/", tenant="other")
    await put(db, endpoints=[mine, other])
    late = a_cause(make, mine, closed_at=NOW)
    early = a_cause(make, mine, closed_at=NOW - 2 * HOUR)
    before = a_cause(make, mine, closed_at=NOW - 30 * HOUR)
    theirs = a_cause(make, other, closed_at=NOW - HOUR)
    gone = a_cause(make, replace(mine, id=99), closed_at=NOW - 3 * HOUR)
    await keep(db, before, late, early, theirs, gone, a_cause(make, mine))

    async def ended(tenant: str | None, limit: int = 10) -> list[Cause]:
        found = await views.ended_causes(tenant=tenant, since=NOW - 24 * HOUR, limit=limit)
        return [it.cause for it in found]

    assert await ended(None) == [late, theirs, early, gone]
    assert await ended("acme") == [late, early, gone]
    assert await ended("acme", limit=1) == [late]
    assert await ended("nobody") == []


async def test_the_oldest_pending_delivery_of_each_endpoint_expires_first(db: Db) -> None:
    views, make = Views(db), Maker()
    busy, idle = make.endpoint(), make.endpoint("https://b.example/")
    subscription = make.subscription(busy)
    events = [make.event(subscription) for _ in range(3)]
    events[0] = replace(
        events[0], deliveries=(replace(events[0].deliveries[0], expires_at=NOW + HOUR),)
    )
    await put(db, endpoints=[busy, idle], subscriptions=[subscription], events=events)
    assert await views.first_expiry_of([busy.id, idle.id, 5]) == {busy.id: NOW + HOUR}
    assert await views.endpoints_by_id([busy.id, idle.id, 5]) == {busy.id: busy, idle.id: idle}


async def test_the_subscriptions_to_an_endpoint_are_found_whatever_the_tenant_has(db: Db) -> None:
    views, make = Views(db), Maker()
    mine, other = make.endpoint(), make.endpoint("https://b.example/")
    wanted = [make.subscription(mine) for _ in range(2)]
    gone = replace(make.subscription(mine), deleted_at=NOW)
    many = [make.subscription(other) for _ in range(20)]
    await put(db, endpoints=[mine, other], subscriptions=[*wanted, gone, *many])
    assert await views.subscriptions_to(mine.id, limit=5) == wanted[::-1]
    assert await views.subscriptions_to(mine.id, limit=1) == wanted[1:]


async def test_a_tenant_with_very_many_causes_costs_its_neighbour_nothing() -> None:
    db = await SqliteDb.open(":memory:")
    views, make = Views(db), Maker()
    noisy = make.endpoint("https://noisy.example/", tenant="noisy")
    mine = make.endpoint()
    await put(db, endpoints=[noisy, mine])
    open_, ended = a_cause(make, mine), a_cause(make, mine, closed_at=NOW - HOUR)
    many = [a_cause(make, noisy, closed_at=None if n % 2 else NOW) for n in range(40_000)]
    await keep(db, open_, ended, *many)
    steps = 0

    def profile(told: dict[str, dict[str, int]]) -> None:
        nonlocal steps
        steps += told["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    db._writer._open()[0].trace_v2(apsw.SQLITE_TRACE_PROFILE, profile)
    failing = await views.failing(tenant="acme", limit=10)
    over = await views.ended_causes(tenant="acme", since=0, limit=10)
    page, _ = await views.causes(
        tenant="acme", endpoint_id=None, is_open=True, before_id=None, limit=10
    )
    assert [[it.cause for it in found] for found in (failing, over, page)] == [
        [open_],
        [ended],
        [open_],
    ]
    assert 0 < steps < 2_000
    await views.failing(tenant=None, limit=10)
    await views.ended_causes(tenant=None, since=0, limit=10)
    assert steps < 100_000
    await db.close()
