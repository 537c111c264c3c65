"""A page costs the same number of SQLite's machine steps, however many rows there are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import apsw
import pytest

from homing.model import Cause, CauseKey, Endpoint, Reason, State, Status, Subscription
from homing.ports import DeliveryFilter, NewEvent, ReplayFilter
from homing.ports.views import AttemptFilter
from homing.store import deliveries as lists
from homing.store import rows
from homing.store.admin import Admin
from homing.store.sqlite import SqliteDb
from homing.store.tx import Tx
from homing.store.views import Views
from store.build import HOUR, NOW, Maker, put

EVENTS = 30_000
CAUSES = 10_000
EACH = 4  # deliveries of an event: one to each endpoint
PLAIN = 25_000  # steps of a page of 50 that shows all it meets
PICKY = 800_000  # steps of a page that looks at 2,000 rows on each side


class Large:
    """120,000 deliveries: those of even events are pending, of odd ones finished."""

    def __init__(self, db: SqliteDb) -> None:
        self.db, self.views, self.admin, self.make = db, Views(db), Admin(db), Maker()
        self.endpoints: list[Endpoint] = []
        self.subscriptions: list[Subscription] = []
        self.events: list[NewEvent] = []
        self.steps = 0
        connection, _ = db._writer._open()
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._profile)

    def _profile(self, told: dict[str, dict[str, int]]) -> None:
        self.steps += told["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    async def build(self) -> Large:
        self.endpoints = [self.make.endpoint(f"https://e{n}.example/") for n in range(EACH)]
        self.endpoints.append(self.make.endpoint("https://idle.example/", state=State.FROZEN))
        self.subscriptions = [self.make.subscription(it) for it in self.endpoints[:EACH]]
        self.events = [self.make.event(*self.subscriptions) for _ in range(EVENTS)]
        finished = [self.make.finished(it) for new in self.events[1::2] for it in new.deliveries]
        rare = [
            self.make.finished(it, Status.DROPPED, Reason.EXPIRED)
            for it in self.make.event(*self.subscriptions).deliveries
        ]
        await put(
            self.db,
            endpoints=self.endpoints,
            subscriptions=self.subscriptions,
            events=self.events,
            finished=[*finished, *rare],
        )
        return self


@pytest.fixture(scope="module")
def large() -> Iterator[Large]:
    async def build() -> Large:
        return await Large(await SqliteDb.open(":memory:")).build()

    large = asyncio.run(build())
    yield large
    asyncio.run(large.db.close())


async def test_a_page_of_deliveries_costs_the_same_however_many_there_are(large: Large) -> None:
    middle = large.events[EVENTS // 2]
    idle = large.endpoints[-1].id
    busy = large.endpoints[0].id
    cases = [
        (DeliveryFilter(), PLAIN),
        (DeliveryFilter(status=Status.PENDING), PLAIN),
        (DeliveryFilter(status=Status.DROPPED), PLAIN),
        (DeliveryFilter(status=Status.CANCELLED), PLAIN),
        (DeliveryFilter(endpoint_id=busy), PLAIN),
        (DeliveryFilter(endpoint_id=busy, status=Status.PENDING), PLAIN),
        (DeliveryFilter(endpoint_id=idle), PLAIN),
        (DeliveryFilter(event_id=middle.event.id), PLAIN),
        (DeliveryFilter(status=Status.DELIVERED), PICKY),
        (DeliveryFilter(tenant="acme"), 2 * PLAIN),
        (DeliveryFilter(tenant="nobody"), PLAIN),
        (DeliveryFilter(tenant="acme", type="nothing"), PICKY),
        (DeliveryFilter(type="nothing.*"), PICKY),
        (DeliveryFilter(subscription_id=17), PICKY),
        (DeliveryFilter(expires_before=0), PICKY),
        (DeliveryFilter(endpoint_id=busy, type="nothing"), PICKY),
        (DeliveryFilter(failure="tls"), PICKY),
        (DeliveryFilter(endpoint_id=busy, code=503), PICKY),
    ]
    for conditions, most in cases:
        for before_id in (None, middle.event.id + EACH):
            large.steps = 0
            await large.views.deliveries(conditions, before_id=before_id, limit=50)
            assert 0 < large.steps < most, conditions


async def test_a_tenant_with_too_many_endpoints_is_walked_by_id(
    large: Large, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "ENDPOINTS_MAX", 3)
    large.steps = 0
    page, _ = await large.views.deliveries(DeliveryFilter(tenant="acme"), before_id=None, limit=50)
    assert len(page) == 50
    assert 0 < large.steps < PICKY


async def test_a_small_tenant_finds_its_deliveries_at_once_among_those_of_all(
    large: Large,
) -> None:
    old = Maker(now=NOW - HOUR)
    endpoint = old.endpoint("https://small.example/", tenant="small")
    subscription = old.subscription(endpoint)
    event = old.event(subscription, subscription, tenant="small")
    await put(
        large.db,
        endpoints=[endpoint],
        subscriptions=[subscription],
        events=[event],
        finished=[old.finished(event.deliveries[0])],
    )
    for conditions in (
        DeliveryFilter(tenant="small"),
        DeliveryFilter(subscription_id=subscription.id),
        DeliveryFilter(tenant="small", type="order.*"),
    ):
        large.steps = 0
        page, cursor = await large.views.deliveries(conditions, before_id=None, limit=50)
        assert [row.delivery for row in page] == list(event.deliveries[::-1])
        assert cursor is None
        assert large.steps < 2_000


async def test_the_other_reads_are_bounded_too(large: Large) -> None:
    views, admin, make = large.views, large.admin, large.make
    busy = large.endpoints[0].id
    reads = [
        (views.events(tenant=None, event_type=None, before_id=None, limit=50), PLAIN),
        (views.events(tenant="nobody", event_type=None, before_id=None, limit=50), 40_000),
        (views.endpoints(tenant="acme", state=None, before_id=None, limit=50), PLAIN),
        (views.event_deliveries(large.events[7].event.id, limit=50), PLAIN),
        (views.waiting(busy, limit=1_000), PLAIN),
        (admin.candidates(make.job(ReplayFilter(type="nothing")), now=NOW, limit=500), 80_000),
        (admin.candidates(make.job(ReplayFilter(endpoint_id=busy)), now=NOW, limit=50), PLAIN),
        (admin.candidates(make.job(ReplayFilter(status=Status.DROPPED)), now=NOW, limit=50), PLAIN),
        (admin.count_replay(make.job(ReplayFilter(tenant="nobody")), now=NOW, limit=1_000), 80_000),
    ]
    for read, most in reads:
        large.steps = 0
        await read
        assert 0 < large.steps < most


async def test_lists_of_causes_and_attempts_are_bounded(large: Large) -> None:
    make, views = large.make, large.views
    busy, idle = large.endpoints[0], large.endpoints[-1]
    closed = [_cause(make.id(), busy, code=500 + n % 90, closed_at=NOW) for n in range(CAUSES)]
    opened = [_cause(make.id(), busy, code=400 + n) for n in range(30)]
    deliveries = [it for new in large.events for it in new.deliveries if it.endpoint_id == busy.id]

    async def write(tx: Tx) -> None:
        await tx.insert("cause", [rows.cause_row(it) for it in (*closed, *opened)])
        await tx.insert("attempt", [rows.attempt_row(make.attempt(it)) for it in deliveries])

    await large.db.run(write)
    assert len(deliveries) > CAUSES

    def causes(tenant: str | None, endpoint: Endpoint | None, is_open: bool | None) -> Any:
        number = None if endpoint is None else endpoint.id
        return views.causes(
            tenant=tenant, endpoint_id=number, is_open=is_open, before_id=None, limit=50
        )

    def attempts(endpoint: Endpoint, **conditions: Any) -> Any:
        asked = AttemptFilter(**conditions)
        return views.endpoint_attempts(endpoint.id, asked, cursor=None, limit=50)

    reads = [
        (causes(None, None, is_open=True), PLAIN),
        (causes("acme", None, is_open=True), PLAIN),
        (causes("nobody", None, is_open=True), PLAIN),
        (causes(None, busy, is_open=None), PICKY),
        (causes(None, idle, is_open=None), PLAIN),
        (causes("nobody", None, is_open=None), PICKY),
        (views.open_causes([busy.id, idle.id]), PLAIN),
        (attempts(busy), PLAIN),
        (attempts(busy, code=503), PICKY),
        (attempts(busy, since=NOW + HOUR), PICKY),
        (attempts(busy, failure="tls"), PICKY),
        (attempts(idle), PLAIN),
    ]
    for number, (read, most) in enumerate(reads):
        large.steps = 0
        await read
        assert 0 < large.steps < most, number


def _cause(number: int, endpoint: Endpoint, *, code: int, closed_at: int | None = None) -> Cause:
    key = CauseKey("http_status", "", code)
    return Cause(number, endpoint.tenant, endpoint.id, key, NOW, NOW, 1, 1, 1, 1, closed_at)


async def test_the_figures_of_metrics_are_sums_and_not_a_scan(large: Large) -> None:
    large.steps = 0
    figures = await large.views.figures(limit=1_000)
    assert figures.pending > EVENTS
    assert (figures.disabled, figures.frozen) == (0, 1)
    assert 0 < large.steps < 200


async def test_a_step_of_a_cleanup_job_is_bounded(large: Large) -> None:
    subscription = large.subscriptions[3]
    await large.admin.delete_subscription(subscription.id, now=1, cleanup_job_id=large.make.id())
    (cleanup_job,) = await large.admin.cleanup_jobs()
    large.steps = 0
    step = await large.admin.run_cleanup_job(
        cleanup_job, target=None, except_ids=frozenset(), now=1, limit=100
    )
    assert (step.touched, step.done) == (100, False)
    assert 0 < large.steps < 30_000
